//! What every command says about real captures, for people to read and to review.

use crate::setup::told;

/// The reconcile that deletes `bucket-b`.
const DELETING: &str = "75f1b435";
/// The reconcile that adds two subnets.
const GROWING: &str = "966f94ec";

#[test]
fn reconciles_are_listed_newest_first() {
    insta::assert_snapshot!("ls", told(&["ls", "--limit", "12"]));
}

#[test]
fn reconciles_are_listed_wide() {
    insta::assert_snapshot!(
        "ls-wide",
        told(&["ls", "networks", "-o", "wide", "--limit", "5"])
    );
}

#[test]
fn reconciles_are_listed_by_what_is_asked_for() {
    let lists = [
        &["ls", "--status", "fatal,incomplete", "--limit", "0"][..],
        &["ls", "--dropped", "bucketset/assets"],
        &["ls", "--function", "function-dead"],
        &[
            "ls",
            "networks.platform.example.org/prod-net",
            "--changed",
            "--limit",
            "2",
        ],
        &["ls", "Operation", "-n", ""],
        &[
            "ls",
            "--since",
            "2026-11-16T04:51:56Z",
            "--until",
            "2026-11-16T04:52:00Z",
        ],
    ];
    insta::assert_snapshot!("ls-filtered", lists.map(told).join("\n"));
}

#[test]
fn reconciles_are_listed_for_programs() {
    let lists = [
        &["ls", "operation/rotate-keys", "--limit", "1", "-o", "json"][..],
        &["ls", "operation/rotate-keys", "--limit", "1", "-o", "yaml"],
    ];
    insta::assert_snapshot!("ls-programs", lists.map(told).join("\n"));
}

#[test]
fn a_reconcile_is_a_tree() {
    let trees = [
        &["show", DELETING][..],
        &["show", "7d4163d2"],
        &["show", "lookup/finder"],
        &["show", "hanger/hanger"],
        &["show", "grpcerror/grpc-abort"],
        &["show", "operation/rotate-keys"],
    ];
    insta::assert_snapshot!("show", trees.map(told).join("\n"));
}

#[test]
fn a_step_is_told_in_full() {
    let steps = [
        &["show", "login/app-login", "compose"][..],
        &["show", "fatal/fatal-bad", "1"],
        &["show", "operation/errors", "abort", "-o", "yaml"],
    ];
    insta::assert_snapshot!("show-step", steps.map(told).join("\n"));
}

#[test]
fn a_payload_is_shown_whole_or_in_part() {
    let payloads = [
        &["show", DELETING, "tidy", "response"][..],
        &[
            "show",
            DELETING,
            "tidy",
            "request",
            "--path",
            "observed.resources.bucket-b.resource.metadata.name",
        ],
        &[
            "show", DELETING, "tidy", "request", "--path", "/input", "-o", "json",
        ],
        &[
            "show",
            DELETING,
            "tidy",
            "request",
            "--path",
            "desired.resources.bucket-x",
        ],
        &["show", "hanger/hanger", "sleep", "response"],
    ];
    insta::assert_snapshot!("show-payload", payloads.map(told).join("\n"));
}

#[test]
fn the_desired_state_evolves_step_by_step() {
    let diffs = [
        &["diff", DELETING][..],
        &["diff", DELETING, "tidy"],
        &["diff", DELETING, "label"],
        &["diff", "raiser/raiser", "1"],
        &["diff", "calm/calm-1", "auto-ready"],
    ];
    insta::assert_snapshot!("diff-steps", diffs.map(told).join("\n"));
}

#[test]
fn two_reconciles_differ_in_what_is_observed_and_desired() {
    let diffs = [
        &["diff", "36a80bea", GROWING][..],
        &["diff", "36a80bea", GROWING, "-o", "yaml"],
        &["diff", "36a80bea", "36a80bea"],
        &["diff", "bucketset/assets"],
        &["diff", "bucketset/assets", "--full"],
        &["diff", "operation/rotate-keys"],
    ];
    insta::assert_snapshot!("diff-two", diffs.map(told).join("\n"));
}

#[test]
fn a_resource_has_a_story() {
    let stories = [
        &["why", "bucketset/assets", "bucket-b", "--trace", DELETING][..],
        &["why", "bucketset/assets", "bucket-b", "--trace", "fd2a665d"],
        &[
            "why",
            "network/prod-net",
            "network-info",
            "--trace",
            GROWING,
        ],
        &[
            "why",
            "network/prod-net",
            "subnet-data-a",
            "--trace",
            GROWING,
        ],
        &["why", "network/prod-net", "VPC/prod-net-32bdd1dbd8c6"],
        &["why", "fatal/fatal-bad", "base"],
        &["why", "fatal/fatal-bad", "fatal-bad"],
        &["why", "hanger/hanger", "base"],
        &["why", "operation/rotate-keys", "rotated"],
        &[
            "why",
            "bucketset/assets",
            "bucket-b",
            "--trace",
            DELETING,
            "-o",
            "json",
        ],
    ];
    insta::assert_snapshot!("why", stories.map(told).join("\n"));
}

#[test]
fn a_resource_that_is_not_there_was_somewhere_or_never() {
    let stories = [
        &["why", "network/prod-net", "subnet-public-b"][..],
        &["why", "network/prod-net", "subnet-public-d"],
        &["why", "network/prod-net", "zebra"],
        // Its name in the cluster, in which it is not any more.
        &["why", "network/prod-net", "prod-net-8087af85d9ad"],
    ];
    insta::assert_snapshot!("why-not", stories.map(told).join("\n"));
}

#[test]
fn an_xr_has_a_history() {
    let histories = [
        &["history", "bucketset/assets"][..],
        &["history", "networks/prod-net", "--limit", "12"],
        &["history", "raiser/raiser"],
        &["history", "bucketset/assets", "--limit", "2", "-o", "json"],
    ];
    insta::assert_snapshot!("history", histories.map(told).join("\n"));
}

#[test]
fn a_resource_has_a_history() {
    let histories = [
        &["history", "bucketset/assets", "bucket-b"][..],
        &["history", "network/prod-net", "network-info"],
        &["history", "bucketset/assets", "bucket-x"],
        &[
            "history",
            "bucketset/assets",
            "assets-c55314a144fe",
            "--limit",
            "3",
        ],
    ];
    insta::assert_snapshot!("history-resource", histories.map(told).join("\n"));
}

#[test]
fn what_is_odd_is_told() {
    let checkups = [
        &["health", "--since", "2026-11-16"][..],
        &["health", "--since", "2026-11-16", "-o", "yaml"],
        &["health", "--since", "2026-11-16T04:50:00Z"],
    ];
    insta::assert_snapshot!("health", checkups.map(told).join("\n"));
}
