//! Payloads and names that nobody should send, and more than anybody reads.

use std::fmt::Write as _;

use spanplane::record::{Record, RecordKind};

use crate::{
    setup::Served,
    support::{Home, message},
};

/// No page is larger, whatever it shows.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

const MARKUP: &str = "<script>alert(1)</script><img src=x onerror=alert(1)>";
/// Red, a title, a line that reads backwards, a blank of no width.
const ESCAPES: &str = "\u{1b}[31mred\u{1b}]0;owned\u{7}\u{202e}drawkcab\u{200b}";

/// A reconcile of two steps: the first asks for this, the second leaves it.
fn reconcile(trace: &str, observed: &str, desired: &str, results: &str) -> Vec<Record> {
    let request = |desired| format!(r#"{{"observed":{observed},"desired":{desired}}}"#);
    let response = format!(r#"{{"desired":{desired},"results":[{results}]}}"#);
    [
        (0, RecordKind::Request, request("{}")),
        (0, RecordKind::Response, response.clone()),
        (1, RecordKind::Request, request(desired)),
        (1, RecordKind::Response, response),
    ]
    .iter()
    .map(|(step, kind, payload)| message(trace, *step, *kind, payload))
    .collect()
}

#[tokio::test]
async fn links_out_of_a_store_on_disk_lead_nowhere() {
    use std::{fs, os::unix::fs::symlink};

    let home = Home::new();
    home.play(&[], &[message("t", 0, RecordKind::Request, "{}")])
        .await;
    let outside = home.path().join("outside");
    fs::create_dir_all(outside.join("2026-11-16")).unwrap();
    let canary = r#"{"v":1,"secret":"canary"}"#;
    fs::write(outside.join("2026-11-16/043646.133-t.json"), canary).unwrap();
    let folder = home.data_dir().join("store/v1/reconciles/Kind.group/_");
    fs::create_dir_all(folder.join("file/2026-11-16")).unwrap();
    let file = folder.join("file/2026-11-16/043646.133-t.json");
    symlink(outside.join("2026-11-16/043646.133-t.json"), file).unwrap();
    symlink(&outside, folder.join("folder")).unwrap();

    let served = Served::of_home(home).await;
    for name in ["file", "folder"] {
        let key = format!("v1/reconciles/Kind.group/_/{name}/2026-11-16/043646.133-t.json");
        for path in ["raw", "open"] {
            let answer = served.get(&format!("/{path}?key={key}")).await;
            assert!(answer.body.contains("a symbolic link"), "{}", answer.body);
            assert!(!answer.body.contains("canary"), "{}", answer.body);
            let is_refused = answer.status.as_u16() == 403;
            // The other shows what the index says of the reconcile, and why there is no more.
            assert_eq!(is_refused, path == "raw", "{name}");
        }
    }
    // What stands beside them is shown.
    let line = served.lines().await.remove(0);
    served.page(&format!("/raw?key={}", line.object.key)).await;
}

async fn served(records: &[Record]) -> Served {
    let home = Home::new();
    home.play(&[], records).await;
    Served::of_home(home).await
}

/// Every page of a reconcile.
async fn pages(served: &Served, trace: &str, resource: &str) -> Vec<(String, String)> {
    let line = served
        .lines()
        .await
        .into_iter()
        .find(|line| line.trace_id == trace)
        .unwrap();
    let encoded = |text: &str| {
        text.bytes().fold(String::new(), |mut all, byte| {
            write!(all, "%{byte:02X}").unwrap();
            all
        })
    };
    let (trace, resource) = (encoded(trace), encoded(resource));
    let key = &line.object.key;
    let mut pages = Vec::new();
    for path in [
        "/".to_owned(),
        format!("/trace/{trace}"),
        format!("/trace/{trace}/step/0"),
        format!("/trace/{trace}/step/1?resource={resource}"),
        format!("/trace/{trace}/step/0/change?resource={resource}"),
        format!("/trace/{trace}/resource?name={resource}"),
        format!("/open?key={key}"),
        format!("/open?key={key}&pointer=/steps/0/request"),
        format!("/open?key={key}&pointer=/steps/0/response&q=a"),
        format!("/xr/Test.example.org/_/{}", encoded(&line.subject.name)),
    ] {
        let answer = served.page(&path).await;
        let bytes = answer.body.len();
        assert!(bytes < MAX_PAGE_BYTES, "{path} has {bytes} bytes");
        pages.push((path, answer.body));
    }
    pages
}

#[tokio::test]
async fn markup_and_escapes_are_shown_and_not_obeyed() {
    let evil = format!("{MARKUP}{ESCAPES}\"'`&");
    let quoted = serde_json::to_string(&evil).unwrap();
    let resource = format!(
        r#"{{"resource":{{"apiVersion":"v1","kind":{quoted},"metadata":{{"name":{quoted}}},"spec":{{{quoted}:{quoted}}}}}}}"#
    );
    let state = format!(
        r#"{{"composite":{{"resource":{{"kind":{quoted}}}}},"resources":{{{quoted}:{resource}}}}}"#
    );
    let result =
        format!(r#"{{"severity":"SEVERITY_WARNING","message":{quoted},"reason":{quoted}}}"#);
    let served = served(&reconcile(&evil, &state, &state, &result)).await;
    for (path, page) in pages(&served, &evil, &evil).await {
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{path} does not show it"
        );
        for obeyed in [
            "<script>",
            "<img src=x",
            "\u{1b}",
            "\u{7}",
            "\u{202e}",
            "\u{200b}",
        ] {
            assert!(!page.contains(obeyed), "{path} has {obeyed:?}");
        }
    }
    let missing = served.get("/trace/%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert!(!missing.body.contains("<script>"), "{}", missing.body);
    for path in [
        "/?kind=%3Cscript%3E&name=%22%3E%3Cscript%3E",
        "/open?key=%3Cscript%3E",
    ] {
        assert!(!served.get(path).await.body.contains("<script>"), "{path}");
    }
}

#[tokio::test]
async fn a_text_of_megabytes_is_cut_with_a_way_to_all_of_it() {
    let long = "0123456789abcdef".repeat(1 << 17);
    let lines = "a line\\n".repeat(1 << 17);
    let resource = format!(r#"{{"resource":{{"kind":"Big","long":"{long}","lines":"{lines}"}}}}"#);
    let state = format!(r#"{{"resources":{{"big":{resource}}}}}"#);
    let trace = "0192aaaa-0000-7000-8000-000000000001";
    let served = served(&reconcile(trace, &state, &state, "")).await;
    pages(&served, trace, "big").await;
    let line = served.lines().await.remove(0);
    let pointer = "/steps/0/request/observed/resources/big/resource/long";
    let page = served
        .page(&format!("/open?key={}&pointer={pointer}", line.object.key))
        .await;
    assert!(page.text().contains("A text of 2.0 MiB"));
    let raw = served
        .page(&format!("/raw?key={}&pointer={pointer}", line.object.key))
        .await;
    assert_eq!(raw.body.len(), long.len() + 2);
}

#[tokio::test]
async fn ten_thousand_resources_are_a_short_page_and_each_can_be_reached() {
    let mut resources = String::new();
    for number in 0..10_000 {
        let ready = if number == 7_777 {
            ""
        } else {
            r#","ready":"READY_TRUE""#
        };
        write!(
            resources,
            r#"{}"bucket-{number:05}":{{"resource":{{"apiVersion":"v1","kind":"Bucket","metadata":{{"name":"b-{number}"}},"spec":{{"n":{number}}}}}{ready}}}"#,
            if number == 0 { "" } else { "," }
        )
        .unwrap();
    }
    let state = format!(r#"{{"resources":{{{resources}}}}}"#);
    let trace = "0192aaaa-0000-7000-8000-000000000002";
    let served = served(&reconcile(trace, &state, &state, "")).await;
    pages(&served, trace, "bucket-00000").await;

    let page = served.page(&format!("/trace/{trace}")).await;
    assert!(page.body.len() < 64 * 1024, "{} bytes", page.body.len());
    assert!(
        page.text()
            .contains("bucket-00000 Bucket · and 9,998 alike"),
        "{}",
        page.text()
    );
    assert!(page.body.contains(">bucket-07777<"));
    let unready = served.page(&format!("/trace/{trace}?rows=unready")).await;
    assert!(unready.body.contains(">bucket-07777<") && !unready.body.contains(">bucket-00000<"));
    let named = served
        .page(&format!("/trace/{trace}?name=bucket-0123"))
        .await;
    assert!(named.body.contains(">bucket-01234<") && !named.body.contains(">bucket-00000<"));
    let alike = page
        .links()
        .into_iter()
        .find(|link| link.contains("like="))
        .unwrap();
    let each = served.page(&alike).await;
    assert!(
        each.text().contains("Rows 1 to 200 of 9,999"),
        "{}",
        each.text()
    );
    let last = served.page(&format!("{alike}&from=9800")).await;
    assert!(last.body.contains(">bucket-09999<"));

    let line = served.lines().await.remove(0);
    let pointer = "/steps/0/request/observed/resources";
    let tree = served
        .page(&format!(
            "/open?key={}&pointer={pointer}&from=9000",
            line.object.key
        ))
        .await;
    assert!(tree.body.contains("bucket-09999"));
}
