//! Redaction: every place in which a secret may be, the docs that list them, and a slow redactor
//! that the fast one has to agree with.

#![cfg(test)]

use std::env;

use proptest::prelude::*;

mod agreement;
mod differential;
mod docs;
mod places;
mod slow;
mod table;
mod yaml;

/// How many cases a property is tested with, unless `PROPTEST_CASES` says so.
fn cases(usual: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    if env::var_os("PROPTEST_CASES").is_some() {
        return default;
    }
    ProptestConfig {
        cases: usual,
        ..default
    }
}
