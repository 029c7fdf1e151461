//! `docs/reference.md` says what the program does: its tables are made from the program, and what
//! people wrote in between names nothing that is not there and leaves out nothing that is.

#![cfg(test)]

mod endpoints;
mod flags;
mod metrics;
mod page;
mod spans;
#[path = "../support/mod.rs"]
mod support;
mod variables;
