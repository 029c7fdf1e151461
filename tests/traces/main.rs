//! Traces, from the messages of a real Crossplane to a real collector: what they say, that they
//! arrive whatever dies or is away meanwhile, and that they say the same whenever they are sent.

#![cfg(test)]

mod independence;
mod killed;
mod links;
mod program;
mod repeated;
mod restless;
mod sampling;
mod setup;
mod snapshots;
mod split;
#[path = "../support/mod.rs"]
mod support;
