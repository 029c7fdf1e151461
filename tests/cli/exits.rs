//! Exit codes, and what is said about stores that hold nothing or are not there.

use std::{fs, io::Read as _, process::Stdio};

use spanplane::{
    archive::{Standing, StandingNote, StoreUrl, Trouble, Variables},
    time::Timestamp,
};
use tempfile::tempdir;

use crate::setup::{ask, ask_store, code_of, copy, program, store, text_of};

/// A question and, in words that say why, how it ended.
fn ends(output: &std::process::Output, code: i32, words: &str) {
    let said = text_of(&output.stderr);
    assert_eq!(code_of(output), code, "{said}");
    assert!(said.contains(words), "{said}");
}

#[test]
fn what_is_found_ends_with_0_and_what_is_not_with_1() {
    assert_eq!(code_of(&ask(&["ls"])), 0);
    assert_eq!(code_of(&ask(&["show", "last"])), 0);
    ends(&ask(&["ls", "Nothing"]), 1, "no reconcile of Nothing");
    ends(&ask(&["ls", "netwrk"]), 1, "try: Network");
    ends(
        &ask(&["ls", "network/prod-nut"]),
        1,
        "try: Network/prod-net",
    );
    let calm = ask(&["ls", "--status", "warning", "calm"]);
    ends(&calm, 1, "fits calm --status warning\ntry: less of that");
    let function = ask(&["ls", "--function", "auto-ready"]);
    ends(&function, 1, "try: --function function-auto-ready\n");
    ends(
        &ask(&["show", "network/prod-nut"]),
        1,
        "try: Network/prod-net",
    );
    ends(&ask(&["show", "ffffffff-ffff"]), 1, "begins with");
    ends(&ask(&["show", "network"]), 1, "try: KIND/NAME");
    ends(&ask(&["show", ""]), 1, "write more of it");
    ends(&ask(&["show", "last", "9"]), 1, "no step 9");
}

#[test]
fn a_difference_ends_with_1() {
    assert_eq!(code_of(&ask(&["diff", "last", "last"])), 0);
    assert_eq!(code_of(&ask(&["diff", "last"])), 1);
    assert_eq!(code_of(&ask(&["diff", "last", "auto-ready"])), 0);
}

#[test]
fn what_can_not_be_told_ends_with_3() {
    // Neither pipeline ended, so that nobody knows what is desired.
    let both = ask(&["diff", "raiser/raiser", "raiser/raiser"]);
    assert_eq!(code_of(&both), 3, "{both:?}");
    assert!(text_of(&both.stdout).contains("not known of both"));
}

#[test]
fn a_wrong_call_ends_with_2() {
    for wrong in [
        &["ls", "--since", "yesterday"][..],
        &["ls", "--status", "good"],
        &["ls", "/prod-net"],
        &["ls", "--store", "ftp://x"],
        &["show"],
        &["show", "last", "0", "answer"],
        &["show", "last", "--path", "x"],
        &["why", "network/prod-net"],
        &["why", "network", "vpc"],
        &["history", "network"],
        &["show", "network/"],
        &["diff", "network/"],
        &["completions", "tcsh"],
        &["ls", "-o", "xml"],
    ] {
        let output = ask(wrong);
        assert_eq!(code_of(&output), 2, "{wrong:?} {output:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_store_that_holds_nothing_is_told() {
    let folder = tempdir().unwrap();
    for question in [
        &["ls"][..],
        &["show", "last"],
        &["diff", "network/prod-net"],
        &["why", "network/prod-net", "vpc"],
        &["history", "network/prod-net"],
    ] {
        ends(&ask_store(folder.path(), question), 1, "try:");
    }
    let health = ask_store(folder.path(), &["health"]);
    ends(&health, 1, "");
    assert!(text_of(&health.stdout).contains("✗  reconciles  "));
    let memory = program(&["ls", "--store", "memory:///"]).output().unwrap();
    ends(&memory, 1, "memory:///");
}

#[test]
fn a_store_that_is_not_there_is_told_and_not_made() {
    let folder = tempdir().unwrap();
    let missing = folder.path().join("missing");
    ends(&ask_store(&missing, &["ls"]), 1, "there is no store");
    assert!(!missing.try_exists().unwrap());
    let data_dir = missing.display().to_string();
    let output = program(&["ls", "--data-dir", &data_dir]).output().unwrap();
    ends(&output, 1, "there is no store");
    // The default is where a sidecar beside Crossplane has it.
    let output = program(&["ls"]).output().unwrap();
    ends(&output, 1, "/var/run/pipeline-inspector/spanplane/store");
}

#[test]
fn a_store_that_does_not_answer_is_told_with_what_to_do() {
    let ask = |question: &[&str]| {
        program(&[question, &["--store", "s3://bucket/prefix"]].concat())
            .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .output()
            .unwrap()
    };
    let list = ask(&["ls"]);
    ends(&list, 3, "check the endpoint");
    assert_eq!(text_of(&list.stderr).lines().count(), 1, "{list:?}");
    let health = ask(&["health", "-o", "json"]);
    ends(&health, 3, "");
    let told: serde_json::Value = serde_json::from_slice(&health.stdout).unwrap();
    let error = told["store"]["error"].as_str().unwrap();
    assert!(error.contains("the store can't be reached"), "{error}");
}

#[test]
fn settings_that_can_not_work_are_told_before_anything_is_asked() {
    for question in [
        &["ls"][..],
        &["show", "last"],
        &["diff", "network/prod-net"],
        &["why", "network/prod-net", "vpc"],
        &["history", "network/prod-net"],
        &["health"],
        &["view", "--address", "127.0.0.1:0"],
        &["serve"],
    ] {
        let output = program(question)
            .env("SPANPLANE_STORE", "s3://bucket/prefix")
            .env("AWS_ENDPOINT_URL", "minio.example:9000")
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "hidden\n")
            .output()
            .unwrap();
        ends(&output, 2, "AWS_ENDPOINT_URL: ");
        ends(&output, 2, "write http://minio.example:9000");
        ends(&output, 2, "AWS_SECRET_ACCESS_KEY: ");
        let told = text_of(&output.stderr);
        assert!(!told.contains("hidden"), "{told}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn health_tells_a_store_that_refuses_from_one_that_is_away() {
    let folder = tempdir().unwrap();
    std::os::unix::fs::symlink(store(), folder.path().join("store")).unwrap();
    let data_dir = folder.path().display().to_string();
    let ask = |trouble: Option<Trouble>| {
        let standing = trouble.map_or(Standing::Works, |trouble| Standing::Fails {
            trouble,
            detail: "as it said".to_owned(),
        });
        let store = StoreUrl::folder(&folder.path().join("store"));
        let store = store.identity(&Variables::default());
        let note = StandingNote::of(&standing, None, &store, Timestamp::default()).unwrap();
        note.write(folder.path()).unwrap();
        let question = ["health", "--data-dir", &data_dir, "--since", "2026-11-16"];
        let table = program(&question).output().unwrap();
        let json = program(&[&question[..], &["-o", "json"]].concat());
        let json: serde_json::Value =
            serde_json::from_slice(&{ json }.output().unwrap().stdout).unwrap();
        (
            code_of(&table),
            text_of(&table.stdout),
            json["writing"].clone(),
        )
    };
    let (_, table, json) = ask(None);
    assert!(table.contains("✓  writing to the store"), "{table}");
    assert!(json["failure"].is_null());
    let (code, table, json) = ask(Some(Trouble::AccessDenied));
    assert_eq!(code, 1);
    assert!(table.contains("✗  writing to the store"), "{table}");
    assert!(table.contains("refused since 1970"), "{table}");
    assert!(table.contains("s3:PutObject"), "{table}");
    assert!(table.contains("(as it said)"), "{table}");
    assert_eq!(json["failure"]["is_refusal"], true);
    let (code, table, json) = ask(Some(Trouble::Unreachable));
    assert_eq!(code, 1);
    assert!(table.contains("fails since 1970"), "{table}");
    assert_eq!(json["failure"]["cause"], "unreachable");
}

#[test]
fn the_store_is_found_in_a_data_directory() {
    let folder = tempdir().unwrap();
    std::os::unix::fs::symlink(store(), folder.path().join("store")).unwrap();
    let data_dir = folder.path().display().to_string();
    let output = program(&["ls", "--data-dir", &data_dir]).output().unwrap();
    assert_eq!(code_of(&output), 0, "{output:?}");
}

#[test]
fn a_broken_part_of_the_index_is_told_and_the_rest_is_read() {
    let folder = tempdir().unwrap();
    copy(store(), folder.path());
    let day = folder.path().join("v1/index/date=2026-11-16");
    let hour = fs::read_dir(&day).unwrap().next().unwrap().unwrap().path();
    fs::write(
        hour.join("odd-18e8bbbf37f4c801-00000001.jsonl.zst"),
        "nonsense",
    )
    .unwrap();
    for question in [
        &["ls"][..],
        &["show", "network/prod-net"],
        &["history", "network/prod-net"],
    ] {
        let output = ask_store(folder.path(), question);
        ends(&output, 0, "is broken");
        assert_eq!(text_of(&output.stderr).matches("warning: ").count(), 1);
    }
    let health = ask_store(
        folder.path(),
        &["health", "--since", "2026-11-16T04:50:00Z"],
    );
    ends(&health, 1, "is broken");
    assert!(text_of(&health.stdout).contains("00000001.jsonl.zst is broken"));
}

#[test]
fn payloads_that_are_gone_say_when_they_were_stored() {
    let folder = tempdir().unwrap();
    copy(store(), folder.path());
    fs::remove_dir_all(folder.path().join("v1/reconciles")).unwrap();
    let gone = ask_store(folder.path(), &["diff", "last"]);
    ends(&gone, 3, "is not in the store any more");
    let history = ["history", "bucketset/assets", "bucket-b"];
    ends(&ask_store(folder.path(), &history), 3, "are gone");
    assert_eq!(code_of(&ask_store(folder.path(), &["show", "last"])), 0);
}

#[test]
fn payloads_that_are_gone_leave_a_gap() {
    let folder = tempdir().unwrap();
    copy(store(), folder.path());
    let day = "v1/reconciles/BucketSet.stores.example.org/default/assets/2026-11-16";
    let objects = fs::read_dir(folder.path().join(day)).unwrap();
    let mut objects: Vec<_> = objects.map(|entry| entry.unwrap().path()).collect();
    objects.sort();
    let count = objects.len();
    // The oldest two, and one in between.
    for place in [0, 1, count - 3] {
        fs::remove_file(&objects[place]).unwrap();
    }
    let history = ask_store(folder.path(), &["history", "bucketset/assets", "bucket-b"]);
    ends(&history, 0, "");
    let told = text_of(&history.stdout);
    assert_eq!(told.matches("the payloads of 2026-11-16T04:31:").count(), 1);
    assert!(told.ends_with("Z are gone\n"), "{told}");
    assert!(told.contains("payloads before 2026-11-16T04:31:"), "{told}");

    for object in &objects[..count - 1] {
        fs::remove_file(object).ok();
    }
    let alone = ask_store(folder.path(), &["diff", "bucketset/assets"]);
    ends(&alone, 3, "are gone");
}

#[test]
fn who_has_seen_enough_may_go() {
    let mut command = program(&["ls", "--limit", "0", "-o", "json"]);
    let store = format!("file://{}", store().display());
    let mut child = command
        .env("SPANPLANE_STORE", store)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code_of(&output), 0);
    assert_eq!(text_of(&output.stderr), "");
}

#[test]
fn shells_get_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let output = program(&["completions", shell]).output().unwrap();
        assert_eq!(code_of(&output), 0);
        let script = text_of(&output.stdout);
        for word in ["history", "completions", "--namespace"] {
            let word = word.trim_start_matches('-');
            assert!(script.contains(word), "{shell} {word}");
        }
    }
}
