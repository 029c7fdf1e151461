//! Names and payloads that are made to deceive whoever prints them.

use spanplane::record::RecordKind;

use crate::{
    setup::{ask_store, text_of},
    support::{Home, message},
};

/// Clears the screen, sets its title, hides, turns text around, rings.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{200b}\r\n\u{7f}<script>";

fn payload(kind: RecordKind) -> String {
    let name = serde_json::to_string(HOSTILE).unwrap();
    let long = format!("{HOSTILE}{}", "x".repeat(1 << 16));
    let long = serde_json::to_string(&long).unwrap();
    let body = format!(
        r#"{{"apiVersion":{name},"kind":{name},"metadata":{{"name":{name},"annotations":{{{name}:{long}}}}},
            "status":{{"conditions":[{{"type":"Ready","status":{name},"reason":{name},"message":{long}}}]}}}}"#
    );
    let resources = format!(r#"{{{name}:{{"resource":{body},"ready":"READY_FALSE"}}}}"#);
    match kind {
        RecordKind::Request => format!(
            r#"{{"meta":{{"tag":{name}}},"observed":{{"composite":{{"resource":{body}}},"resources":{resources}}}}}"#
        ),
        RecordKind::Response => format!(
            r#"{{"meta":{{"tag":{name},"ttl":"60s"}},"desired":{{"resources":{resources}}},
                "results":[{{"severity":"SEVERITY_WARNING","reason":{name},"message":{long}}}],
                "conditions":[{{"type":{name},"status":"STATUS_CONDITION_FALSE","reason":{name},"message":{name}}}],
                "requirements":{{"resources":{{{name}:{{"apiVersion":{name},"kind":{name},"matchName":{name}}}}}}}}}"#
        ),
    }
}

/// A reconcile whose every name and text is hostile.
fn records(trace: &str) -> Vec<spanplane::record::Record> {
    let trace = format!("{trace}{HOSTILE}");
    [RecordKind::Request, RecordKind::Response]
        .map(|kind| message(&trace, 0, kind, &payload(kind)))
        .to_vec()
}

#[tokio::test]
async fn nothing_that_is_printed_acts_on_a_terminal() {
    let home = Home::new();
    home.play(&[], &[records("1"), records("2")].concat()).await;
    let store = home.data_dir().join("store");
    let xr = format!("test/xr-of-1{HOSTILE}");
    let mut printed = 0;
    for question in [
        &["ls"][..],
        &["ls", "-o", "wide"],
        &["ls", "-o", "json"],
        &["ls", "-o", "yaml"],
        &["ls", HOSTILE],
        &["show", "1"],
        &["show", "1", "-o", "json"],
        &["show", "1", "0"],
        &["show", "1", "0", "request"],
        &["show", "1", "0", "request", "-o", "json"],
        &["show", "1", "0", "response"],
        &["show", "1", HOSTILE],
        &["show", "1", "0", "request", "--path", HOSTILE],
        &["show", HOSTILE],
        &["diff", "1"],
        &["diff", "1", "0"],
        &["diff", "1", "2"],
        &["diff", "1", "2", "-o", "json"],
        &["why", &xr, HOSTILE],
        &["why", &xr, HOSTILE, "-o", "yaml"],
        &["why", &xr, "a"],
        &["history", &xr],
        &["history", &xr, HOSTILE],
        &["history", &xr, HOSTILE, "-o", "json"],
        &["health", "--since", "2020-01-01"],
        &["health", "--since", "2020-01-01", "-o", "json"],
    ] {
        let output = ask_store(&store, question);
        for text in [&output.stdout, &output.stderr].map(|text| text_of(text)) {
            let acts = |c: char| {
                (c.is_control() && c != '\n')
                    || ('\u{2028}'..='\u{202e}').contains(&c)
                    || c == '\u{200b}'
            };
            let found = text.char_indices().find(|(_, c)| acts(*c));
            assert_eq!(found, None, "{question:?}");
            printed += text.matches("\\u001b[2J").count();
        }
    }
    assert!(printed > 100, "only {printed} places were hostile");
}

#[tokio::test]
async fn what_is_for_programs_reads_back_as_it_came() {
    let home = Home::new();
    home.play(&[], &records("1")).await;
    let store = home.data_dir().join("store");
    let shown = ask_store(&store, &["show", "1", "0", "request", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let sent: serde_json::Value = serde_json::from_str(&payload(RecordKind::Request)).unwrap();
    assert_eq!(shown, sent);
    let shown = ask_store(&store, &["show", "1", "0", "request"]);
    let shown: serde_json::Value = serde_norway::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown, sent);
}
