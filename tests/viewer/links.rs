//! Every link on every page leads somewhere, and every page keeps to the rules.

use std::collections::{BTreeSet, VecDeque};

use reqwest::StatusCode;

use crate::setup::{Answer, Served};

/// Pages that are followed; a store of a few captures has no more kinds than that.
const MOST: usize = 400;

#[tokio::test]
async fn every_link_leads_somewhere() {
    let served = Served::of_captures(&["dropper", "broken", "operation", "requirements"]).await;
    let mut seen = BTreeSet::from(["/".to_owned()]);
    let mut waiting = VecDeque::from(["/".to_owned()]);
    let mut kinds = BTreeSet::new();
    let mut followed = 0;
    while let Some(path) = waiting.pop_front() {
        let answer = served.get(&path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_keeps_the_rules(&path, &answer);
        kinds.insert(kind_of(&path));
        followed += 1;
        if followed == MOST {
            break;
        }
        for link in answer.links() {
            if seen.insert(link.clone()) {
                // Kinds of pages that were not seen yet come first.
                if kinds.contains(&kind_of(&link)) {
                    waiting.push_back(link);
                } else {
                    waiting.push_front(link);
                }
            }
        }
    }
    let expected = [
        "/",
        "/assets",
        "/open",
        "/raw",
        "/trace",
        "/trace/changes",
        "/trace/resource",
        "/trace/step",
        "/xr",
    ];
    for kind in expected {
        assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
    }
}

/// Such as `/trace/step`.
fn kind_of(path: &str) -> String {
    let path = path.split('?').next().unwrap();
    let mut segments = path.split('/').skip(1);
    let first = segments.next().unwrap();
    match segments.nth(1) {
        Some(second) if first == "trace" => format!("/{first}/{second}"),
        _ => format!("/{first}"),
    }
}

fn assert_keeps_the_rules(path: &str, answer: &Answer) {
    let policy = answer.header("content-security-policy");
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{path}: {policy}");
    }
    assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
    if !answer.header("content-type").starts_with("text/html") {
        return;
    }
    assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    // What the policy would stop must not be there in the first place.
    for odd in [
        " style=\"",
        "<style",
        "href=\"javascript:",
        " onclick=",
        "src=\"http",
        "href=\"http",
    ] {
        assert!(!answer.body.contains(odd), "{path} has {odd}");
    }
    assert_eq!(answer.body.matches("<script").count(), 1, "{path}");
    assert_eq!(answer.body.matches("<h1").count(), 1, "{path}");
    assert_eq!(answer.body.matches("<main").count(), 1, "{path}");
}
