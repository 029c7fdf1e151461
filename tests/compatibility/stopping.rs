//! How it stops: as the reference does, but for one thing. That lets a call whose message is still
//! on its way finish; here it is answered `UNAVAILABLE` (`what_comes_while_stopping_…` in
//! `tests/sidecar.rs`), since time is needed for what was taken already, and core is on its way out
//! as well.

use std::fs;

use rustix::process::Signal;
use spanplane::record::RecordKind;

use crate::support::{capture, emit_all, message, program::Place};

#[tokio::test]
async fn both_signals_end_it_with_0_and_take_the_socket_away() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let running = place.start(&[]).await;
        let (status, ..) = running.end_by(signal).await;
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(!place.socket().try_exists().unwrap(), "{signal:?}");
    }
}

#[tokio::test]
async fn everything_that_was_answered_is_printed_before_the_end() {
    let place = Place::new();
    let records = capture("operation");
    let running = place
        .start(&["--format=json", "--shutdown-timeout=1m"])
        .await;
    emit_all(&mut place.client(), &records).await;
    let (status, printed, _) = running.terminate().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(printed.lines().count(), records.len());
}

#[tokio::test]
async fn a_client_that_stays_connected_does_not_keep_it() {
    let place = Place::new();
    let running = place.start(&[]).await;
    let mut client = place.client();
    emit_all(&mut client, &capture("operation")).await;
    let (status, ..) = running.terminate().await;
    assert_eq!(status.code(), Some(0));
    let sent = message("t", 0, RecordKind::Request, "{}");
    client.emit(sent.kind, sent.message).await.unwrap_err();
}

#[tokio::test]
async fn when_the_time_is_up_it_ends_with_0_all_the_same() {
    let place = Place::new();
    let store = place.path().join("store");
    fs::write(&store, "in the way").unwrap();
    let url = format!("--store=file://{}", store.display());
    let running = place.start(&[&url, "--shutdown-timeout=10ms"]).await;
    emit_all(&mut place.client(), &capture("operation")).await;
    let (status, _, logged) = running.terminate().await;
    assert_eq!(status.code(), Some(0));
    assert!(logged.contains("not everything could be sent in time"));
    assert!(!place.socket().try_exists().unwrap());
}
