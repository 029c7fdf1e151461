//! spanplane
pub mod assemble;
pub mod bell;
pub mod decode;
pub mod metrics;
pub mod print;
pub mod proto;
pub mod reconcile;
pub mod record;
pub mod redact;
pub mod spool;
pub mod time;
