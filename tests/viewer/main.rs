//! The viewer as a browser sees it: a real server on a socket, over a store that the real sidecar
//! filled with what a real Crossplane emitted, and with what nobody should.

#![cfg(test)]

mod access;
mod away;
mod call;
mod hostile;
mod large;
mod links;
mod pages;
mod payloads;
mod program;
mod setup;
mod sidecar;
#[path = "../support/mod.rs"]
mod support;
