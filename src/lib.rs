//! spanplane: a sidecar for Crossplane that keeps every function call of every pipeline.
//!
//! Read it in the order of the flow: [`serve`] starts the stages and joins them; [`receive`] takes
//! messages and answers; [`spool`] keeps them on disk; [`decode`] takes them apart; [`assemble`]
//! puts reconciles together; [`redact`] takes secrets out; [`publish`] writes documents; [`archive`]
//! stores them. The other modules are leaves: they import no stage.

#![forbid(unsafe_code)]

pub mod answers;
pub mod archive;
pub mod assemble;
pub mod backoff;
pub mod bell;
pub mod capture;
pub mod causes;
pub mod client;
pub mod config;
pub mod decode;
pub mod disk;
pub mod export;
pub mod fingerprint;
pub mod history;
pub mod ids;
pub mod json;
pub mod line;
pub mod memory;
pub mod metrics;
pub mod outbox;
pub mod pace;
mod pack;
pub mod panics;
pub mod print;
pub mod proto;
pub mod publish;
pub mod receive;
pub mod reconcile;
pub mod record;
pub mod redact;
pub mod retries;
pub mod serve;
pub mod spans;
pub mod spool;
pub mod summarise;
pub mod text;
pub mod time;
mod tls;
pub mod viewer;
mod web;
