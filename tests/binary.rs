//! The program as people run it: its flags, its output, its exit codes, and its death.

#![cfg(test)]

mod support;

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use spanplane::{
    client::InspectorClient,
    record::{Record, RecordKind},
};
use support::{
    PATIENCE, assert_all_payloads_stored, capture, documents, emit_all, folder_archive, message,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
};

/// A folder with a socket and a data directory.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("run/socket")
    }

    fn data_dir(&self) -> PathBuf {
        self.0.path().join("run/spanplane")
    }

    /// The program with only the socket set, as after an exchange of the image.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spanplane"));
        command
            .env_clear()
            .env("PIPELINE_INSPECTOR_SOCKET", self.socket())
            .env("SPANPLANE_METRICS_ADDRESS", "127.0.0.1:0")
            .env("SPANPLANE_VIEWER_ADDRESS", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn start(&self, flags: &[&str]) -> Running {
        Running::wait_for(self.command().args(flags).spawn().unwrap()).await
    }

    /// Runs the program to its end.
    async fn output(&self, flags: &[&str]) -> Output {
        self.command().args(flags).output().await.unwrap()
    }

    fn client(&self) -> InspectorClient {
        InspectorClient::new(self.socket(), PATIENCE)
    }
}

/// A program that listens.
struct Running {
    child: Child,
    /// The line that says where everything goes.
    listening: Value,
    log: BufReader<tokio::process::ChildStderr>,
}

impl Running {
    async fn wait_for(mut child: Child) -> Self {
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                log.read_line(&mut line).await.unwrap(),
                0,
                "it ended: {text}"
            );
            if line.contains("\"listening\"") {
                return Self {
                    child,
                    listening: serde_json::from_str(&line).unwrap(),
                    log,
                };
            }
            text.push_str(&line);
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Asks it to end, and returns how it did and what it printed.
    async fn terminate(mut self) -> (ExitStatus, String, String) {
        self.signal(Signal::TERM);
        let (mut printed, mut logged) = (String::new(), String::new());
        let mut stdout = self.child.stdout.take().unwrap();
        let (printing, logging) = tokio::join!(
            stdout.read_to_string(&mut printed),
            self.log.read_to_string(&mut logged)
        );
        printing.and(logging).unwrap();
        (self.child.wait().await.unwrap(), printed, logged)
    }

    async fn get(&self, path: &str) -> String {
        use tokio::io::AsyncWriteExt as _;

        let address = self.listening["metrics"].as_str().unwrap();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

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
    let segments = fs::read_dir(place.data_dir().join("spool"))
        .unwrap()
        .count();
    assert!(segments <= 1, "{segments} files are left in the spool");
}

#[tokio::test]
async fn the_flags_and_variables_of_the_reference_sidecar_work_unchanged() {
    let place = Place::new();
    let mut command = place.command();
    command
        .args(["--format=json", "--debug"])
        .env("MAX_RECV_MSG_SIZE", "8388608")
        .env("SHUTDOWN_TIMEOUT", "1m30s");
    let running = Running::wait_for(command.spawn().unwrap()).await;
    let mode = fs::metadata(place.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let spool = fs::read_dir(place.data_dir().join("spool")).unwrap();
    for entry in spool.chain(fs::read_dir(place.data_dir()).unwrap()) {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o027, 0, "others can read raw payloads: {mode:o}");
    }
    let records = capture("operation");
    emit_all(&mut place.client(), &records).await;
    let (status, printed, _) = running.terminate().await;
    assert!(status.success());
    assert_eq!(printed.lines().count(), records.len());
    for line in printed.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["meta"]["operationMeta"]["operationName"].is_string());
    }
    assert!(!place.socket().try_exists().unwrap());
}

#[tokio::test]
async fn text_is_printed_redacted_and_without_the_flag_nothing_is() {
    let (loud, quiet) = (Place::new(), Place::new());
    let records = capture("secrets");
    let running = loud
        .start(&[
            "serve",
            "--format",
            "text",
            "--socket",
            loud.socket().to_str().unwrap(),
        ])
        .await;
    emit_all(&mut loud.client(), &records).await;
    let (_, printed, _) = running.terminate().await;
    assert!(
        printed.starts_with(
            "=== REQUEST ===\n  XR:          vault.example.org/v1/Login (app-login)\n"
        )
    );
    assert_eq!(printed.matches("\n=== RE").count() + 1, records.len());
    assert!(printed.contains("**REDACTED**"));
    assert!(!printed.contains("canary-s3cr3t-1-stringdata"));

    let running = quiet.start(&[]).await;
    emit_all(&mut quiet.client(), &records).await;
    let (_, printed, _) = running.terminate().await;
    assert_eq!(printed, "");
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
    for flags in [
        &["--socket-mode=0666"][..],
        &["--shutdown-timeout=5"],
        &["--max-recv-msg-size=lots"],
        &["--format=xml"],
        &["--no-such-flag"],
        &["no-such-command"],
    ] {
        let output = place.output(flags).await;
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(!output.stderr.is_empty(), "{flags:?}");
    }
    assert!(!place.0.path().join("run").try_exists().unwrap());
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
async fn only_a_stale_socket_is_replaced() {
    let place = Place::new();
    let socket = place.socket();
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let live = UnixListener::bind(&socket).unwrap();
    assert_refused(&place, "listens on it").await;
    drop(live);
    place.start(&[]).await.terminate().await;
    fs::write(&socket, "precious").unwrap();
    assert_refused(&place, "no socket").await;
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
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
    let store = place.0.path().join("store");
    fs::write(&store, "in the way").unwrap();
    let url = format!("--store=file://{}", store.display());
    let running = place.start(&[&url, "--shutdown-timeout=10ms"]).await;
    let records = capture("dropper");
    emit_all(&mut place.client(), &records).await;
    let (_, _, logged) = running.terminate().await;
    assert!(logged.contains("the store can't be written to"), "{logged}");
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
    let folder = place.0.path().join("demo");
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
