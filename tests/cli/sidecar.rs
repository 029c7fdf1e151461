//! In the sidecar's container: the environment is that of the Helm values, which name a store and no
//! data directory. What the sidecar noted there counts for its own store, and for no other.

use std::{fs, process::Output};

use spanplane::{
    archive::{Standing, StandingNote, StoreIdentity, StoreUrl, Trouble, Variables},
    record::RecordKind,
    time::Timestamp,
};
use tempfile::tempdir;

use crate::{
    setup::{code_of, program, text_of},
    support::{
        emit_all, message,
        program::{Place, Running},
        s3::{Mood, S3Server},
        until,
    },
};

const STORE: &str = "s3://payloads/spanplane";

/// The container's environment, but for the address of the socket: Helm values and secret.
fn environment(server: &S3Server) -> [(&'static str, String); 7] {
    let collector = "http://127.0.0.1:1";
    [
        ("SPANPLANE_STORE", STORE.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.to_owned()),
        ("SPANPLANE_DATA_MAX_BYTES", "1920MiB".to_owned()),
        ("AWS_ACCESS_KEY_ID", "inspector".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "inspector-secret".to_owned()),
        // Where a test's bucket is.
        ("AWS_ENDPOINT_URL", server.endpoint()),
    ]
}

/// A sidecar in its container.
async fn start(place: &Place, server: &S3Server) -> Running {
    let mut command = place.command();
    Running::wait_for(command.envs(environment(server)).spawn().unwrap()).await
}

/// What is asked there by `kubectl exec`.
async fn exec(place: &Place, server: &S3Server, question: &[&str]) -> Output {
    let mut command = place.command();
    command.envs(environment(server)).args(question);
    command.output().await.unwrap()
}

async fn health(place: &Place, server: &S3Server) -> (i32, String) {
    let output = exec(place, server, &["health"]).await;
    (code_of(&output), text_of(&output.stdout))
}

async fn emit(place: &Place, trace: &str) {
    let records = [RecordKind::Request, RecordKind::Response]
        .map(|kind| message(trace, 0, kind, r#"{"a":1}"#));
    emit_all(&mut place.client(), &records).await;
}

/// The files in a folder of the data directory, which the sidecar may not have made yet.
fn names_in(place: &Place, folder: &str) -> Vec<String> {
    let files = fs::read_dir(place.data_dir().join(folder));
    let files = files.into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test]
async fn health_says_there_why_the_store_refuses_what_is_written() {
    let server = S3Server::start().await;
    server.set(Mood::RefusesAll(403, "AccessDenied"));
    let place = Place::new();
    let sidecar = start(&place, &server).await;
    emit(&place, "t").await;
    let note = || StandingNote::read(&place.data_dir()).unwrap();
    until("it is noted", || note().is_some()).await;
    let waits = || names_in(&place, "outbox/objects").len() == 1;
    until("an object waits", waits).await;
    let (code, told) = health(&place, &server).await;
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("✗  writing to the store"), "{told}");
    assert!(told.contains("s3:PutObject"), "{told}");
    let objects = told
        .lines()
        .find(|line| line.contains("objects for the store"));
    assert!(objects.unwrap().contains(" in 1 file"), "{told}");
    let title = place.data_dir().display().to_string();
    assert!(told.lines().any(|line| line == title), "{told}");

    server.set(Mood::Works);
    until("it is noted", || note().unwrap().failure.is_none()).await;
    let (_, told) = health(&place, &server).await;
    assert!(told.contains("✓  writing to the store"), "{told}");
    let (status, _, log) = sidecar.terminate().await;
    assert!(status.success(), "{log}");
}

#[tokio::test]
async fn what_is_in_quarantine_is_shown_and_sent_again_there() {
    let server = S3Server::start().await;
    server.set(Mood::Refuses("xr-of-t/"));
    let place = Place::new();
    let sidecar = start(&place, &server).await;
    // Something has to pass, or the store would refuse everything.
    emit(&place, "other").await;
    emit(&place, "t").await;
    let holds = |ending: &str| {
        let mut names = names_in(&place, "quarantine").into_iter();
        names.any(|name| name.ends_with(ending))
    };
    until("it is refused", || holds(".parcel")).await;
    let (code, told) = health(&place, &server).await;
    assert_eq!(code, 1);
    assert!(told.contains("✗  refused, in quarantine"), "{told}");
    let listed = exec(&place, &server, &["quarantine", "ls"]).await;
    assert!(text_of(&listed.stdout).contains("xr-of-t"), "{listed:?}");

    server.set(Mood::Works);
    let retried = exec(&place, &server, &["quarantine", "retry"]).await;
    assert_eq!(code_of(&retried), 0, "{retried:?}");
    until("it is taken back", || !holds(".note")).await;
    let (status, _, log) = sidecar.terminate().await;
    assert!(status.success(), "{log}");
    let shown = exec(&place, &server, &["ls"]).await;
    assert!(text_of(&shown.stdout).contains("xr-of-t"), "{shown:?}");
}

/// Asks on a machine with a data directory where a sidecar has it by default.
fn health_beside(note: Option<&StoreIdentity>, arguments: &[&str]) -> (i32, String, String) {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("spanplane");
    fs::create_dir_all(data_dir.join("quarantine")).unwrap();
    fs::write(data_dir.join("lock"), "").unwrap();
    fs::write(data_dir.join("quarantine/1-0.parcel"), "refused").unwrap();
    if let Some(store) = note {
        let standing = Standing::Fails {
            trouble: Trouble::AccessDenied,
            detail: String::new(),
        };
        let note = StandingNote::of(&standing, None, store, Timestamp::default()).unwrap();
        note.write(&data_dir).unwrap();
    }
    let data_dir = data_dir.display().to_string();
    let arguments = arguments
        .iter()
        .map(|argument| argument.replace("DATA_DIR", &data_dir));
    let arguments: Vec<_> = arguments.collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let mut command = program(&[&["health", "--store=memory:///"], &arguments[..]].concat());
    command.env("PIPELINE_INSPECTOR_SOCKET", folder.path().join("socket"));
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr];
    let shown = |text: &[u8]| text_of(text).replace(&data_dir, "DATA_DIR");
    (code_of(&output), shown(out), shown(err))
}

fn identity(url: &str) -> StoreIdentity {
    StoreUrl::parse(url)
        .unwrap()
        .identity(&Variables::default())
}

#[test]
fn a_sidecar_of_another_store_has_no_say_unless_it_is_asked() {
    let (_, told, said) = health_beside(Some(&identity(STORE)), &[]);
    assert!(!told.contains("DATA_DIR"), "{told}");
    assert!(!told.contains("in quarantine"), "{told}");
    assert!(
        said.contains("the sidecar in DATA_DIR writes to s3://payloads/spanplane"),
        "{said}"
    );

    let (_, told, said) = health_beside(Some(&identity(STORE)), &["--data-dir=DATA_DIR"]);
    let title = "DATA_DIR: its sidecar writes to s3://payloads/spanplane";
    assert!(told.lines().any(|line| line == title), "{told}");
    assert!(told.contains("refused since"), "{told}");
    assert_eq!(said, "");
}

#[test]
fn a_sidecar_that_has_not_said_which_store_is_its_own_is_shown_as_such() {
    let (_, told, _) = health_beside(None, &[]);
    let title = "DATA_DIR: its sidecar has not yet noted which store it writes to";
    assert!(told.lines().any(|line| line == title), "{told}");
    assert!(told.contains("✗  refused, in quarantine"), "{told}");
}

#[test]
fn programs_are_told_where_it_was_found() {
    let (_, told, _) = health_beside(Some(&identity("memory:///")), &["-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["data_dir"], "DATA_DIR");
    assert_eq!(told["writing"]["store"]["url"], "memory:///");
    let (_, told, _) = health_beside(Some(&identity(STORE)), &["-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(
        told["data_dir"].is_null() && told["writing"].is_null(),
        "{told}"
    );
}

#[test]
fn a_folder_beside_the_socket_that_no_sidecar_made_is_not_looked_into() {
    let folder = tempdir().unwrap();
    fs::create_dir_all(folder.path().join("spanplane/quarantine")).unwrap();
    fs::write(folder.path().join("spanplane/quarantine/1-0.parcel"), "").unwrap();
    let mut command = program(&["health", "--store=memory:///"]);
    command.env("PIPELINE_INSPECTOR_SOCKET", folder.path().join("socket"));
    let told = text_of(&command.output().unwrap().stdout);
    assert!(!told.contains("quarantine"), "{told}");
}
