//! The gRPC services on a Unix socket: take a message, keep it, answer.
//!
//! Invariant: nothing is decoded, parsed, hashed or compressed before the answer; the answer means
//! that the message is in the log. Must not know: what a log is made of, or what follows it.

mod connection;
mod inspector;
mod oversize;
mod socket;

pub use self::{
    inspector::{Inspector, MessageLog, ServeError, serve_inspector},
    socket::{BindError, Socket},
};
