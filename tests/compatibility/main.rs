//! Crossplane's reference sidecar, as tables: what it makes of a flag, a variable, a message, a
//! signal, a file in its way; and that this program makes the same of it, so that exchanging the
//! image is enough. Where this one differs on purpose, the row says what the reference does, and
//! why not here.
//!
//! The tables were made from `inspector-sidecar` v0.0.3: what they say of it was seen with the
//! binary, and the files beside `output` are what it printed.

#![cfg(test)]

mod ending;
mod output;
mod settings;
mod stopping;
#[path = "../support/mod.rs"]
mod support;
