//! How the collector does, and what the log says of it.
//!
//! Invariant: each kind of trouble is logged once, and once that all of it is over; tries in between,
//! and a hiccup that the next try gets over, leave no line.

use std::sync::{Mutex, PoisonError};

use super::failure::{Course, Failure, Trouble};

/// A single failure is a hiccup.
const HICCUPS: u32 = 1;

#[derive(Debug, Default)]
pub(super) struct Condition(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Failures since the last success.
    failures: u32,
    told: Vec<Trouble>,
    /// What the collector complained about last.
    warning: String,
}

impl Condition {
    pub(super) fn worked(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures = 0;
    }

    /// Nothing is failing any more.
    pub(super) fn recovered(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.told.is_empty() {
            state.told.clear();
            tracing::info!("the collector takes traces again");
        }
    }

    pub(super) fn failed(&self, failure: &Failure) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.failures;
        state.failures = before.saturating_add(1);
        tracing::debug!(error = %failure, "a batch of spans was not taken");
        let is_worth_it = before >= HICCUPS || failure.trouble.course() == Course::TrySlowly;
        if is_worth_it && !state.told.contains(&failure.trouble) {
            state.told.push(failure.trouble);
            tracing::warn!(
                error = %failure, advice = failure.trouble.advice(),
                "cannot send traces; they wait in the outbox"
            );
        }
    }

    /// Everything was taken, though not without a word.
    pub(super) fn warned(&self, words: String) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.warning != words {
            tracing::warn!(
                warning = words,
                "the collector took the spans, with a warning"
            );
            state.warning = words;
        }
    }
}
