//! Batches of spans, and the sidecar's own metrics, to a real collector that answers as it is
//! told: whatever it does, each span arrives or is counted as lost.

#![cfg(test)]

#[path = "../support/authority.rs"]
mod authority;
mod delivering;
#[path = "../support/otlp.rs"]
mod otlp;
mod own_metrics;
mod refusing;
mod setup;
mod tls;
mod waiting;
