//! What is served over HTTP.

use crate::page::{found, text};

#[test]
fn the_paths_are_those_that_are_routed() {
    let source = include_str!("../../src/serve/health.rs");
    let routed = found("route\\(\"/[a-z]+", source).into_iter();
    let routed = routed.map(|route| route.replace("route(\"", ""));
    let told = found("(?m)^\\| `/[a-z]+", &text()).into_iter();
    let told = told.map(|row| row.replace("| `", ""));
    assert_eq!(told.collect::<Vec<_>>(), routed.collect::<Vec<_>>());
}
