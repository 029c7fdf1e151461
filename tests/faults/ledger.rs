//! What was sent, and what the sidecar answered.
//!
//! Invariant: a message is in here once its call has ended, with what has to be stored of it if it
//! was acknowledged. A call without an answer proves nothing: its message may be stored or not.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use spanplane::{reconcile::PayloadHash, record::RecordKind};
use tonic::{Code, Status};

use crate::payload::holds_canary;

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) span_id: String,
    pub(crate) kind: RecordKind,
    pub(crate) content: Content,
    pub(crate) is_acknowledged: bool,
}

/// What has to be stored of a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Content {
    /// A payload with one of these hashes.
    Payload([PayloadHash; 2]),
    /// A response that is an error has no payload.
    Error(String),
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    traces: HashMap<String, Vec<Sent>>,
    answers: Answers,
    /// Answers that gave a secret away.
    leaks: Vec<String>,
}

/// How calls ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) acknowledged: u64,
    pub(crate) acknowledged_bytes: u64,
    /// By reason.
    pub(crate) failed: BTreeMap<String, u64>,
}

impl Ledger {
    /// Notes how a call ended.
    pub(crate) fn note(
        &self,
        trace_id: &str,
        mut sent: Sent,
        bytes: usize,
        answer: Result<(), Status>,
    ) {
        let mut inner = self.lock();
        match answer {
            Ok(()) => {
                sent.is_acknowledged = true;
                inner.answers.acknowledged += 1;
                inner.answers.acknowledged_bytes += bytes as u64;
            }
            Err(status) => {
                let text = status.to_string();
                if holds_canary(text.as_bytes()) {
                    inner.leaks.push(text);
                }
                *inner.answers.failed.entry(reason(&status)).or_default() += 1;
            }
        }
        let trace = inner.traces.entry(trace_id.to_owned()).or_default();
        trace.push(sent);
    }

    pub(crate) fn answers(&self) -> Answers {
        self.lock().answers.clone()
    }

    pub(crate) fn leaks(&self) -> Vec<String> {
        self.lock().leaks.clone()
    }

    /// All messages, by trace.
    pub(crate) fn traces(&self) -> HashMap<String, Vec<Sent>> {
        self.lock().traces.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reason(status: &Status) -> String {
    let message = status.message();
    match status.code() {
        // NOTE: which of the two it is depends on whose clock ran out first.
        Code::DeadlineExceeded | Code::Cancelled => "no answer within 100 ms".to_owned(),
        Code::ResourceExhausted => format!("refused: {message}"),
        Code::Unavailable if message.starts_with("shutting down") => format!("refused: {message}"),
        Code::Unavailable | Code::Unknown | Code::Internal => {
            "not running, or died meanwhile".to_owned()
        }
        code => format!("{code:?}"),
    }
}
