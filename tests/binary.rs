//! The program as people run it: its own flags, its metrics, its demo, and its death. What it has
//! from the reference sidecar is in `compatibility`.

#![cfg(test)]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use spanplane::record::{Record, RecordKind};
use support::{
    PATIENCE, assert_all_payloads_stored, capture, documents, emit_all, folder_archive, message,
    program::{Place, Running},
    s3::{Mood, S3Server},
    until,
};
use tokio::{io::AsyncWriteExt as _, process::Command, sync::watch, task::JoinSet};

/// The timeout of the chart's probes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn killed_under_load_it_loses_nothing_that_it_acknowledged() {
    const CLIENTS: usize = 4;
    const MESSAGES_A_LIFE: usize = 120;

    let place = Place::new();
    let acknowledged = Arc::new(Mutex::new(Vec::<Record>::new()));
    for life in 0..4 {
        let mut running = place.start(&["--spool-max-bytes=256MiB"]).await;
        let target = (life + 1) * MESSAGES_A_LIFE;
        let (count, mut counted) = watch::channel(0);
        let count = Arc::new(count);
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let (mut client, acknowledged) = (place.client(), Arc::clone(&acknowledged));
            let count = Arc::clone(&count);
            clients.spawn(async move {
                for reconcile in 0.. {
                    for step in 0..3 {
                        for kind in [RecordKind::Request, RecordKind::Response] {
                            let trace = format!("life{life}-client{number}-{reconcile}");
                            let content = format!("{trace} {step} {kind:?} ").repeat(500);
                            let payload = format!("{{\"a\":\"{content}\"}}");
                            let record = message(&trace, step, kind, &payload);
                            // The program was killed.
                            if client.emit(kind, record.message.clone()).await.is_err() {
                                return;
                            }
                            let mut acknowledged = acknowledged.lock().unwrap();
                            acknowledged.push(record);
                            count.send_replace(acknowledged.len());
                        }
                    }
                }
            });
        }
        counted.wait_for(|count| *count >= target).await.unwrap();
        running.child.kill().await.unwrap();
        while clients.join_next().await.is_some() {}
    }

    let (status, ..) = place
        .start(&["--shutdown-timeout=60s"])
        .await
        .terminate()
        .await;
    assert!(status.success());
    let acknowledged = acknowledged.lock().unwrap().clone();
    assert!(acknowledged.len() >= 4 * MESSAGES_A_LIFE);
    let stored = documents(&folder_archive(&place.data_dir().join("store"))).await;
    assert_all_payloads_stored(&acknowledged, &stored);
    // Everything is done with: the spool holds nothing but the segment that was begun last.
    let files = fs::read_dir(place.data_dir().join("spool")).unwrap();
    let files: Vec<_> = files
        .map(|file| file.unwrap())
        .filter(|file| file.metadata().unwrap().len() > 0)
        .filter(|file| file.file_name() != "done.log")
        .collect();
    assert!(files.len() <= 1, "left in the spool: {files:?}");
}

/// Where the record is that a process says it is processing, and how many died there before.
fn in_progress(place: &Place) -> Option<(u32, u32)> {
    let note = fs::read(place.data_dir().join("spool/in-progress")).ok()?;
    let number = |at: usize| Some(u32::from_le_bytes(*note.get(at..)?.first_chunk()?));
    Some((number(8)?, number(12)?))
}

#[tokio::test]
async fn a_message_at_which_the_process_is_killed_twice_is_skipped_and_kept() {
    let place = Place::new();
    let before = message("before", 0, RecordKind::Request, r#"{"good":1}"#);
    let after = message("after", 0, RecordKind::Request, r#"{"good":2}"#);
    // Printed into a pipe that nobody reads, it is processed for ever.
    let large = format!("{{\"deadly\":\"{}\"}}", "x".repeat(200_000));
    let deadly = message("deadly", 0, RecordKind::Request, &large);
    let offset = u32::try_from(8 + 32 + before.message.len()).unwrap();
    for life in 0..2 {
        let mut running = place.start(&["--format=text"]).await;
        if life == 0 {
            let records = [before.clone(), deadly.clone(), after.clone()];
            emit_all(&mut place.client(), &records).await;
        }
        let is_stuck = || in_progress(&place) == Some((offset, life));
        until("the message is processed", is_stuck).await;
        running.child.kill().await.unwrap();
    }

    let running = place
        .start(&["--format=text", "--shutdown-timeout=1m"])
        .await;
    let (status, _, log) = running.terminate().await;
    assert!(status.success());
    let skipped = log
        .lines()
        .find(|line| line.contains("it is quarantined and skipped"));
    let skipped = skipped.unwrap_or_else(|| panic!("{log}"));
    for field in ["\"segment\":1", &format!("\"offset\":{offset}")] {
        assert!(skipped.contains(field), "{skipped}");
    }
    let kept = fs::read_dir(place.data_dir().join("quarantine")).unwrap();
    let mut kept = kept.map(|entry| entry.unwrap().path());
    let is_message = |path: &PathBuf| path.extension().is_some_and(|end| end == "message");
    let kept = kept.find(is_message).unwrap();
    assert_eq!(fs::read(kept).unwrap(), deadly.message);
    let stored = documents(&folder_archive(&place.data_dir().join("store"))).await;
    assert_eq!(stored.len(), 2);
    assert_all_payloads_stored(&[before.clone(), after.clone()], &stored);
    let data_dir = place.data_dir().display().to_string();
    let listed = place
        .output(&["quarantine", "ls", "--data-dir", &data_dir])
        .await;
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("1   messages"), "{listed}");
    assert!(listed.contains("the process died 2 times"), "{listed}");

    // Nobody prints any more, and so it was not its fault.
    let retry = ["quarantine", "retry", "1", "--data-dir", &data_dir];
    assert!(place.output(&retry).await.status.success());
    let running = place.start(&["--shutdown-timeout=1m"]).await;
    let (status, _, log) = running.terminate().await;
    assert!(status.success(), "{log}");
    let stored = documents(&folder_archive(&place.data_dir().join("store"))).await;
    assert_all_payloads_stored(&[before, deadly, after], &stored);
    let listed = place
        .output(&["quarantine", "ls", "--data-dir", &data_dir])
        .await;
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed, "nothing is in quarantine\n");
}

#[tokio::test]
async fn a_stop_that_runs_out_of_time_is_not_blamed_on_what_is_processed() {
    let place = Place::new();
    // Printed into a pipe that nobody reads, it is processed for ever.
    let large = format!("{{\"slow\":\"{}\"}}", "x".repeat(200_000));
    let slow = message("slow", 0, RecordKind::Request, &large);
    for life in 0..3 {
        let mut running = place
            .start(&["--format=text", "--shutdown-timeout=10ms"])
            .await;
        if life == 0 {
            emit_all(&mut place.client(), std::slice::from_ref(&slow)).await;
        }
        let is_stuck = || in_progress(&place).is_some();
        until("the message is processed", is_stuck).await;
        let pid = i32::try_from(running.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        assert!(running.child.wait().await.unwrap().success());
        assert_eq!(in_progress(&place), None);
    }
    let running = place.start(&["--shutdown-timeout=1m"]).await;
    let (status, ..) = running.terminate().await;
    assert!(status.success());
    let stored = documents(&folder_archive(&place.data_dir().join("store"))).await;
    assert_all_payloads_stored(&[slow], &stored);
}

/// Whether something is a folder, and its permissions.
type Entry = (bool, u32);

/// The program under another umask than the one that it sets.
fn start_under(umask: &str, place: &Place, flags: &[&str]) -> Command {
    let mut command = place.command_of("/bin/sh".as_ref());
    let script = format!("umask {umask}; exec \"$0\" \"$@\"");
    command
        .args(["-c", &script, env!("CARGO_BIN_EXE_spanplane")])
        .args(flags);
    command
}

/// What is in a folder and below it, and their modes, by their paths in it.
fn modes_below(folder: &Path) -> BTreeMap<String, Entry> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            found.insert(name.to_owned(), (metadata.is_dir(), mode));
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Checks what a program that has ended left behind, the folder of its socket included.
fn assert_private(place: &Place, expected: &[&str]) {
    let found = modes_below(place.path());
    for (path, (is_folder, mode)) in &found {
        // Nobody can connect to what is left of a socket.
        if !path.ends_with("run/socket") {
            let allowed = if *is_folder { 0o750 } else { 0o640 };
            assert_eq!(*mode, allowed, "{path} has {mode:o}");
        }
    }
    for path in expected {
        let path = format!("run/spanplane/{path}");
        let is_there = |found: &String| found.strip_prefix(&path).is_some();
        let has_any = found
            .iter()
            .any(|(found, (is_folder, _))| !is_folder && is_there(found));
        assert!(has_any, "no file {path} among {found:?}");
    }
}

/// A reconcile of one step, which ends it.
fn failed_reconcile(trace: &str) -> [Record; 2] {
    let request = format!("{{\"of\":\"{trace}\"}}");
    let response = r#"{"results":[{"severity":"SEVERITY_FATAL","message":"no"}]}"#;
    [
        message(trace, 0, RecordKind::Request, &request),
        message(trace, 0, RecordKind::Response, response),
    ]
}

#[tokio::test]
async fn what_waits_on_disk_is_nobody_elses_business() {
    let place = Place::new();
    let server = S3Server::start().await;
    let start = || async {
        let mut command = start_under("0000", &place, &["--shutdown-timeout=5m"]);
        command
            .env("SPANPLANE_STORE", S3Server::url("prefix"))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
            .env("AWS_ENDPOINT_URL", server.endpoint())
            .env("AWS_ACCESS_KEY_ID", "inspector")
            .env("AWS_SECRET_ACCESS_KEY", "inspector-secret")
            .env("AWS_REGION", "us-east-1");
        Running::wait_for(command.spawn().unwrap()).await
    };
    let has_file = |folder: &str| {
        let entries = fs::read_dir(place.data_dir().join(folder));
        let mut entries = entries.into_iter().flatten();
        entries.any(|entry| entry.unwrap().path().is_file())
    };
    server.set(Mood::Refuses("xr-of-bad"));
    let mut running = start().await;
    for trace in ["good-1", "bad", "good-2"] {
        emit_all(&mut place.client(), &failed_reconcile(trace)).await;
    }
    until("it is refused", || has_file("quarantine")).await;
    server.set(Mood::Unavailable);
    emit_all(&mut place.client(), &failed_reconcile("waiting")).await;
    until("everything waits", || {
        ["objects", "index", "traces"]
            .iter()
            .all(|what| has_file(&format!("outbox/{what}")))
    })
    .await;
    running.child.kill().await.unwrap();
    assert_private(
        &place,
        &[
            "history.jsonl",
            "lock",
            "outbox/index/",
            "outbox/objects/",
            "outbox/traces/",
            "quarantine/",
            "spool/",
            "store-state.json",
        ],
    );
}

#[tokio::test]
async fn what_is_stored_on_disk_is_nobody_elses_business() {
    let place = Place::new();
    let [request, response] = failed_reconcile("split");
    // What comes with a restart in between is joined in the store.
    for record in [request, response] {
        let command = start_under("0077", &place, &["--shutdown-timeout=5m"]).spawn();
        let running = Running::wait_for(command.unwrap()).await;
        emit_all(&mut place.client(), &[record]).await;
        let (status, _, log) = running.terminate().await;
        assert!(status.success(), "{log}");
    }
    assert_private(
        &place,
        &[
            "history.jsonl",
            "lock",
            "spool/",
            "store-state.json",
            "store/v1/index/",
            "store/v1/reconciles/",
            "store/v1/replace.lock",
        ],
    );
}

#[tokio::test]
async fn what_is_printed_is_redacted() {
    let place = Place::new();
    let running = place
        .start(&["--format=text", "--shutdown-timeout=1m"])
        .await;
    emit_all(&mut place.client(), &capture("secrets")).await;
    let (_, printed, _) = running.terminate().await;
    assert!(printed.contains("**REDACTED**"));
    assert!(!printed.contains("canary-s3cr3t-1-stringdata"));
}

#[tokio::test]
async fn metrics_and_health_are_served() {
    let place = Place::new();
    let running = place.start(&[]).await;
    emit_all(&mut place.client(), &capture("operation")).await;
    let metrics = running.get("/metrics").await;
    for line in [
        "spanplane_messages_received_total{rpc=\"request\"} 9",
        "spanplane_messages_acknowledged_total{rpc=\"response\"} 9",
        "spanplane_messages_refused_total{reason=\"spool_full\"} 0",
        "spanplane_ack_duration_seconds_count 18",
        "spanplane_spool_limit_bytes 1073741824",
        "# TYPE spanplane_spool_bytes gauge",
        "# TYPE spanplane_spool_oldest_record_age_seconds gauge",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert!(running.get("/healthz").await.ends_with("ok\n"));
    assert!(running.get("/readyz").await.ends_with("ready\n"));
    running.terminate().await;
}

#[tokio::test]
async fn probes_are_answered_however_many_clients_are_slow_or_silent() {
    let place = Place::new();
    let running = place.start(&[]).await;
    let mut others = Vec::new();
    // NOTE: the last ones take all seats.
    for sent in [[""; 100], ["GET /heal"; 100]].concat() {
        let mut stream = running.connect().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        others.push(stream);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        // Without making room, a server answers only when the half requests time out, after 30 s.
        let answer = tokio::time::timeout(PROBE_TIMEOUT, running.get(path)).await;
        assert!(answer.unwrap().starts_with("HTTP/1.1 200"), "{path}");
    }
    drop(others);
    running.terminate().await;
}

#[tokio::test]
async fn settings_of_telemetry_that_are_not_valid_do_not_keep_it_from_receiving() {
    const NOT_VALID: [(&str, &str); 15] = [
        ("OTEL_SDK_DISABLED", "1"),
        ("OTEL_TRACES_EXPORTER", "otlp,console"),
        ("OTEL_METRICS_EXPORTER", "otlp,logging"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://s3cr3t"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "yes"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "s3cr3t"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/nowhere.pem"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m"),
        ("OTEL_RESOURCE_ATTRIBUTES", "s3cr3t"),
        // Nobody has to listen there.
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem"),
    ];
    let place = Place::new();
    let mut command = place.command();
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1")
        .envs(NOT_VALID)
        .env("SHUTDOWN_TIMEOUT", "100ms");
    let running = Running::wait_for(command.spawn().unwrap()).await;
    emit_all(&mut place.client(), &capture("operation")).await;
    let (status, _, logged) = running.terminate().await;
    assert!(status.success(), "{logged}");
    for (variable, _) in NOT_VALID {
        assert!(logged.contains(variable), "{variable} is not in {logged}");
    }
    assert!(!logged.contains("s3cr3t"), "{logged}");
}

#[tokio::test]
async fn every_mistake_is_told_and_ends_with_2() {
    let place = Place::new();
    let flags = [
        "--store=ftp://x",
        "--redact=no-pointer",
        "--redact-key=(",
        "--spool-max-bytes=1",
        "--metrics-address=x",
        "--viewer-address=0.0.0.0:0",
    ];
    let output = place.output(&flags).await;
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    for word in [
        "--store",
        "--redact:",
        "--redact-key:",
        "--spool-max-bytes",
        "--metrics-address",
        "--viewer-token",
    ] {
        assert!(told.contains(word), "{word} is not in {told}");
    }
    let output = place.output(&["--socket-mode=0666"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(!place.path().join("run").try_exists().unwrap());
}

async fn assert_refused(place: &Place, word: &str) {
    let output = place.output(&[]).await;
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("error: ") && told.contains(word),
        "{word} is not in {told}"
    );
}

#[tokio::test]
async fn a_second_process_on_the_same_data_directory_refuses_to_start() {
    let place = Place::new();
    let running = place.start(&[]).await;
    assert_refused(&place, "another process").await;
    emit_all(&mut place.client(), &capture("operation")).await;
    running.terminate().await;
    place.start(&[]).await.terminate().await;
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_is_told() {
    let place = Place::new();
    fs::create_dir_all(place.socket().parent().unwrap()).unwrap();
    fs::write(place.data_dir(), "in the way").unwrap();
    assert_refused(&place, "cannot create").await;
    assert!(!place.socket().try_exists().unwrap());
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_does_not_keep_it_from_receiving() {
    let place = Place::new();
    let store = place.path().join("store");
    fs::write(&store, "in the way").unwrap();
    let url = format!("--store=file://{}", store.display());
    let running = place.start(&[&url, "--shutdown-timeout=10ms"]).await;
    let records = capture("dropper");
    emit_all(&mut place.client(), &records).await;
    let (_, _, logged) = running.terminate().await;
    assert!(logged.contains("cannot write to the store"), "{logged}");
    fs::remove_file(&store).unwrap();
    place
        .start(&[&url, "--shutdown-timeout=60s"])
        .await
        .terminate()
        .await;
    assert_all_payloads_stored(&records, &documents(&folder_archive(&store)).await);
}

#[tokio::test]
async fn the_demo_shows_what_it_stored() {
    let place = Place::new();
    let folder = place.path().join("demo");
    let output = place
        .output(&["demo", "--data-dir", folder.to_str().unwrap()])
        .await;
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "290 messages of 43 reconciles",
        "BucketSet default/assets",
        "a drop of bucket-b, a flap of bucket-b",
        "a failure in validate (fatal)",
        "a failure in abort (error)",
        "a failure in sleep (incomplete)",
        "all the same",
        "spanplane view --store file://",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    let stored = documents(&folder_archive(&folder.join("store"))).await;
    assert!(stored.len() > 25, "{} objects", stored.len());
    assert!(
        stored
            .keys()
            .all(|key| Path::new(key).starts_with("v1/reconciles"))
    );
}

#[tokio::test]
async fn the_docs_name_no_variable_or_metric_that_is_not_there() {
    let place = Place::new();
    let help = String::from_utf8(place.output(&["--help"]).await.stdout).unwrap();
    let running = place.start(&[]).await;
    for name in ["dropper", "broken"] {
        emit_all(&mut place.client(), &capture(name)).await;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = ["README.md", "config/helm-values.yaml"].map(|file| {
        let text = fs::read_to_string(root.join(file)).unwrap();
        (file, text)
    });
    // What is counted only once it happens has to happen first.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = running.get("/metrics").await;
        let unknown = docs.iter().find_map(|(file, text)| {
            let word = unknown_word(text, &help, &metrics)?;
            Some(format!("{file} names {word}"))
        });
        match unknown {
            None => break,
            Some(unknown) => assert!(Instant::now() < deadline, "{unknown}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.terminate().await;
}

/// The first variable or metric in a text that the program does not know.
fn unknown_word<'t>(text: &'t str, help: &str, metrics: &str) -> Option<&'t str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    let is_known = |word: &str| match word {
        // The value of a secret is not shown.
        word if word.starts_with("SPANPLANE_") => ['=', ']']
            .iter()
            .any(|end| help.contains(&format!("[env: {word}{end}"))),
        // No message of a real Crossplane is odd.
        "spanplane_messages_odd_total" => true,
        word if word.starts_with("spanplane_") => metrics.contains(&format!("# TYPE {word} ")),
        _ => true,
    };
    text.split(|character| !is_part(character))
        .find(|word| !is_known(word))
}
