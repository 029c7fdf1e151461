//! `spanplane view` and the sidecar's flags, as people type them.

use std::process::{Output, Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::{
    setup::Served,
    support::{Home, capture},
};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanplane"));
    command
        .env_clear()
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = program(arguments).output().await.unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn off_loopback_nothing_starts_without_a_token() {
    for arguments in [
        &["view", "--store=memory:///", "--address=0.0.0.0:0"][..],
        &[
            "view",
            "--store=memory:///",
            "--address=0.0.0.0:0",
            "--token=short",
        ],
        &["serve", "--viewer-address=0.0.0.0:0"],
    ] {
        let (code, told) = refused(arguments).await;
        assert_eq!(code, Some(2), "{arguments:?}: {told}");
        assert!(told.contains("token"), "{told}");
    }
    let (code, told) = refused(&["view", "--address=x", "--url=x"]).await;
    assert_eq!(code, Some(2));
    for flag in ["--address", "--url"] {
        assert!(told.contains(flag), "{flag} is not in {told}");
    }
    let (code, told) = refused(&["view", "--store=ftp://x"]).await;
    assert_eq!((code, told.contains("--store")), (Some(2), true), "{told}");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_told() {
    let (code, told) = refused(&[
        "view",
        "--store=file:///no/such/store",
        "--address=127.0.0.1:0",
    ])
    .await;
    assert_eq!(code, Some(1));
    assert!(told.contains("there is no /no/such/store"), "{told}");
}

#[tokio::test]
async fn any_store_can_be_viewed() {
    let home = Home::new();
    home.play(&[], &capture("dropper")).await;
    let data_dir = home.data_dir();
    for flag in [
        format!("--store=file://{}", data_dir.join("store").display()),
        format!("--data-dir={}", data_dir.display()),
    ] {
        view(&flag).await;
    }
}

async fn view(flag: &str) {
    let mut child = program(&["view", flag, "--address=127.0.0.1:0"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.next_line().await.unwrap().unwrap();
    let (_, url) = told.split_once(" is at http://").unwrap();
    let served = Served::at(url.trim_end_matches('/'));
    assert!(served.page("/").await.body.contains("BucketSet"));
    let id = child.id().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().await.unwrap().success());
}
