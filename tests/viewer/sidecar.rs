//! The viewer that the sidecar serves.

use std::time::{Duration, Instant};

use crate::{
    setup::Served,
    support::{Home, PATIENCE, capture, stop},
};

/// Asks until a page says something.
async fn wait_for(served: &Served, path: &str, word: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !served.get(path).await.body.contains(word) {
        assert!(Instant::now() < deadline, "{path} never said {word}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_sidecar_shows_what_it_stored() {
    let home = Home::new();
    home.play(&[], &capture("dropper")).await;
    let sidecar = home.start(&["--viewer-address=127.0.0.1:0"]).await;
    let address = sidecar.viewer_address().unwrap().to_string();
    let served = Served::at(&address);
    wait_for(&served, "/", "BucketSet").await;
    stop(sidecar).await;
}

#[tokio::test]
async fn what_is_in_memory_only_is_shown_too() {
    let home = Home::new();
    let sidecar = home
        .start(&["--viewer-address=127.0.0.1:0", "--store=memory:///"])
        .await;
    let served = Served::at(&sidecar.viewer_address().unwrap().to_string());
    served.page("/").await;
    home.emit_all(&capture("dropper")).await;
    stop(sidecar).await;
}

#[tokio::test]
async fn a_port_that_is_taken_costs_the_viewer_only() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--viewer-address={}", taken.local_addr().unwrap());
    let home = Home::new();
    let sidecar = home.start(&[&address]).await;
    assert_eq!(sidecar.viewer_address(), None);
    home.emit_all(&capture("dropper")).await;
    stop(sidecar).await;
    assert!(!home.documents().await.is_empty());
}
