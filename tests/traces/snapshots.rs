//! What the traces of real captures say, for people to read and to review.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use opentelemetry_proto::tonic::trace::v1::Span;
use spanplane::spans::{Detail, render};

use crate::{
    setup::{by_trace, is_root, spans_of_log, text, value},
    support::{Home, capture},
};

/// Each reconcile of a capture, in order of time.
async fn reconciles(name: &str) -> Vec<Vec<Span>> {
    let home = Home::new();
    let flags = ["--store=memory:///payloads"];
    let spans = spans_of_log(&home, &flags, &capture(name)).await;
    let mut reconciles: Vec<_> = by_trace(&spans).into_values().collect();
    reconciles.sort_by_key(|spans| spans[0].start_time_unix_nano);
    reconciles
}

/// Grouped by subject, those that began first first.
async fn outline(name: &str) -> String {
    let reconciles = reconciles(name).await;
    let first = reconciles[0][0].start_time_unix_nano;
    let mut subjects: BTreeMap<String, (Duration, String)> = BTreeMap::new();
    for spans in &reconciles {
        let root = &spans[0];
        assert!(is_root(root));
        let of = |key| text(&root.attributes, key);
        let subject = format!(
            "{} {}/{}",
            of("k8s.object.kind"),
            of("k8s.namespace.name"),
            of("k8s.object.name")
        );
        let start = Duration::from_nanos(root.start_time_unix_nano - first);
        let (_, told) = subjects.entry(subject).or_insert((start, String::new()));
        let (seconds, outline) = (start.as_secs_f64(), render(spans, Detail::Outline));
        write!(told, "\nafter {seconds:.3} s\n{outline}").unwrap();
    }
    let mut subjects: Vec<_> = subjects.into_iter().collect();
    subjects.sort_by_key(|(_, (start, _))| *start);
    let told = subjects
        .iter()
        .map(|(subject, (_, told))| format!("# {subject}\n{told}"));
    told.collect::<Vec<_>>().join("\n\n")
}

/// The first reconcile of a capture whose root is like this, with all that it says.
async fn picture(name: &str, is_it: impl Fn(&Span) -> bool) -> String {
    let reconciles = reconciles(name).await;
    let found = reconciles.iter().find(|spans| is_it(&spans[0])).unwrap();
    let key = text(&found[0].attributes, "crossplane.object.key");
    render(found, Detail::Full).replace(key, "KEY")
}

#[tokio::test]
async fn what_fails_says_where_and_why() {
    insta::assert_snapshot!("broken", outline("broken").await);
}

#[tokio::test]
async fn a_dropped_resource_is_told_until_it_is_desired_again() {
    insta::assert_snapshot!("dropper", outline("dropper").await);
}

#[tokio::test]
async fn resources_become_ready_one_by_one() {
    insta::assert_snapshot!("network", outline("network").await);
}

#[tokio::test]
async fn operations_have_traces_too() {
    insta::assert_snapshot!("operation", outline("operation").await);
}

#[tokio::test]
async fn what_was_asked_for_besides_is_told() {
    insta::assert_snapshot!("requirements", outline("requirements").await);
}

#[tokio::test]
async fn what_secrets_hold_is_not_told() {
    insta::assert_snapshot!("secrets", outline("secrets").await);
}

#[tokio::test]
async fn what_stays_the_same_is_unchanged() {
    insta::assert_snapshot!("steady-idle", outline("steady-idle").await);
}

#[tokio::test]
async fn what_becomes_ready_changes() {
    insta::assert_snapshot!("steady-start", outline("steady-start").await);
}

#[tokio::test]
async fn the_reconcile_that_deletes_a_bucket_names_the_step() {
    let deletes = |root: &Span| {
        let count = value(&root.attributes, "crossplane.resources.delete.count");
        count.is_some()
    };
    insta::assert_snapshot!("dropper-full", picture("dropper", deletes).await);
}

#[tokio::test]
async fn a_fatal_result_stands_on_its_step_and_on_the_root() {
    let is_fatal = |root: &Span| text(&root.attributes, "error.type") == "fatal";
    insta::assert_snapshot!("fatal-full", picture("broken", is_fatal).await);
}

#[tokio::test]
async fn a_failed_call_stands_on_its_step_and_on_the_root() {
    let is_grpc = |root: &Span| text(&root.attributes, "error.type") == "invalid_argument";
    insta::assert_snapshot!("grpc-error-full", picture("broken", is_grpc).await);
}
