//! The gRPC services on a Unix socket: take a message, keep it, answer.
//!
//! Invariant: nothing is decoded, parsed, hashed or compressed before the answer; the answer means
//! that the message is in the log. What is in memory meanwhile is bounded, whoever connects and
//! whatever they send. Must not know: what a log is made of, or what follows it.

mod accepting;
mod admission;
mod budget;
mod connection;
mod inspector;
mod oversize;
mod pool;
mod socket;
#[cfg(test)]
mod tests;

pub use self::{
    budget::{MessageMemory, Withheld},
    inspector::{Inspector, MessageLog, ReceiveLimits, ServeError, serve_inspector},
    socket::{BindError, Socket},
};
