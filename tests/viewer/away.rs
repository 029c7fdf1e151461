//! A store that does not answer is not one that holds nothing.

use spanplane::{
    archive::{Archive, Compression, StoreUrl},
    viewer::Access,
};

use crate::{
    setup::Served,
    support::{
        Home, capture,
        s3::{Mood, S3Server},
    },
};

async fn assert_is_away(served: &Served, path: &str, advice: &str) {
    let answer = served.get(path).await;
    let text = answer.text();
    assert_eq!(answer.status.as_u16(), 502, "{path}: {text}");
    assert!(text.contains("The store does not answer"), "{path}: {text}");
    assert!(text.contains(advice), "{path}: {text}");
    assert!(!text.contains("No reconcile"), "{path}: {text}");
}

#[tokio::test]
async fn a_store_that_is_down_is_not_empty() {
    let bucket = S3Server::start().await;
    let variables = bucket.variables();
    // Nobody listens there any more.
    drop(bucket);
    let url = StoreUrl::parse(&S3Server::url("some/prefix")).unwrap();
    let archive = Archive::open(&url, &variables, Compression::default()).unwrap();
    let served = Served::with_access(archive, &|bound| Access::new(bound, None, None)).await;
    assert_is_away(&served, "/", "check the endpoint").await;
    assert_is_away(&served, "/trace/last", "check the endpoint").await;
}

#[tokio::test]
async fn every_page_says_that_the_store_does_not_answer() {
    let bucket = S3Server::start().await;
    let home = Home::with_s3(&bucket);
    home.play(&[], &capture("dropper")).await;
    let served = Served::of_home(home).await;
    let line = served.lines().await.remove(0);
    let pages = [
        "/".to_owned(),
        "/?status=failed".to_owned(),
        "/rows?".to_owned(),
        "/trace/last".to_owned(),
        format!("/trace/{}/step/0", line.trace_id),
        "/xr/BucketSet.stores.example.org/default/assets".to_owned(),
        format!("/open?key={}&pointer=/steps/0/request", line.object.key),
    ];
    bucket.set(Mood::IsWriteOnly);
    for path in &pages {
        assert_is_away(
            &served,
            path,
            "s3:PutObject, s3:GetObject and s3:ListBucket",
        )
        .await;
    }
    bucket.set(Mood::Works);
    for path in &pages {
        if !path.contains("failed") {
            served.page(path).await;
        }
    }
}
