//! The command line as people use it: the real program on a store that the real sidecar filled
//! with what a real Crossplane emitted.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod arrivals;
mod exits;
mod following;
mod hostile;
mod namesakes;
mod quarantine;
mod setup;
mod sidecar;
mod snapshots;
mod split;
mod terminal;
mod waiting;
