//! What can't be read: what was tried, what to do, and the cause, once.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use spanplane::{archive::IndexError, causes::with_causes};

use super::screen::tell;

/// Tells that a part of the index can't be read, which is no reason not to read the rest. It is
/// told once, however often it is tried.
pub(crate) fn tell_trouble(error: &IndexError) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let warning = format!("warning: {}", with_causes(error));
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(warning.clone()) {
        tell(&warning);
    }
}

/// Why nothing at all can be read.
pub(crate) fn troubled(error: IndexError) -> anyhow::Error {
    let advice = error.store_error().map(|error| error.trouble.advice());
    let error = anyhow::Error::new(error);
    match advice {
        Some(advice) => error.context(format!("cannot read the index; {advice}")),
        None => error.context("cannot read the index"),
    }
}
