//! New reconciles are shown as they come.

use spanplane::{
    capture::Replay,
    record::Record,
    time::{Clock as _, SystemClock},
};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    setup::program,
    support::{Home, PATIENCE, capture},
};

/// A capture as what happens now.
fn replayed(run: &str) -> Vec<Record> {
    let mut replay = Replay::new(run.to_owned());
    let records = capture("secrets").into_iter();
    let again = records.map(|record| Record {
        message: replay.next(&record, SystemClock.now()).1,
        ..record
    });
    again.collect()
}

#[tokio::test]
async fn new_reconciles_come_last() {
    let home = Home::new();
    home.play(&[], &replayed("before")).await;
    let data_dir = home.data_dir().display().to_string();
    let arguments = [
        "ls",
        "--follow",
        "--limit",
        "2",
        "-o",
        "json",
        "--data-dir",
        &data_dir,
    ];
    let mut command = tokio::process::Command::from(program(&arguments));
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut times = Vec::new();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.expect("a line in time").unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        times.push(line["started_at"].as_str().unwrap().to_owned());
    };
    // What is there beyond the limit is not shown as new when it is looked at again.
    for _ in 0..2 {
        next().await;
    }
    home.play(&[], &replayed("after")).await;
    for _ in 0..5 {
        next().await;
    }
    assert!(times.is_sorted(), "{times:?}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn what_comes_stands_under_the_head() {
    let home = Home::new();
    let data_dir = home.data_dir().display().to_string();
    std::fs::create_dir_all(home.data_dir().join("store")).unwrap();
    let arguments = ["ls", "--follow", "--data-dir", &data_dir];
    let mut command = tokio::process::Command::from(program(&arguments));
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        line.expect("a line in time").unwrap().unwrap()
    };
    let head = next().await;
    home.play(&[], &replayed("after")).await;
    let line = next().await;
    for (column, cell) in [("XR", "Login/"), ("STATUS", "ok "), ("STEPS", "3 ")] {
        let place = head.find(column).unwrap();
        let under = line.get(place..).unwrap();
        assert!(under.starts_with(cell), "{head}\n{line}");
    }
    child.kill().await.unwrap();
}
