//! Spans to a collector, by OTLP.
//!
//! The caller keeps batches on disk and hands them over one at a time. Invariant: a batch is done
//! with only when the collector took its spans, or said of each that is missing that it will never
//! take it; a collector that is away, overloaded or set up wrongly is waited for.
//!
//! ```text
//! settings ◀── variables         what is sent, where, as whom
//! Exporter ──▶ transport         one try, by gRPC or HTTP ──▶ failure: what it means
//!     └──▶ halving               finds the span that is refused
//! own_metrics ──▶ transport      the sidecar's own metrics, in the library's hands
//! ```

mod condition;
mod failure;
mod halving;
mod own_metrics;
mod resource;
mod sampler;
mod settings;
mod tls_files;
mod transport;
mod variables;

use std::{
    collections::VecDeque,
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

use self::{
    condition::Condition,
    failure::{Course, Failure, one_line},
    halving::halves,
    transport::Transport,
};
pub use self::{
    own_metrics::OwnMetrics,
    resource::{resource_from_variables, sdk_resource},
    sampler::Sampler,
    settings::{OtlpSettings, Signal},
    tls_files::TlsFileError,
    variables::Lookup,
};
use crate::{
    backoff::Backoff,
    metrics::{Metrics, SpanLoss},
    spans::{EncodedSpans, spans_in},
};

/// A collector that fails this often in a row may do so because of these spans.
const STUBBORN_TRIES: u32 = 10;

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum ExportSetupError {
    #[error("cannot set up TLS for OTLP")]
    TlsFile(#[from] TlsFileError),
    #[error(
        "cannot set up a client for OTLP; if the system has no certificates, name a file of them \
         in OTEL_EXPORTER_OTLP_CERTIFICATE"
    )]
    Client(#[source] Box<dyn Error + Send + Sync>),
}

impl ExportSetupError {
    fn client(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Client(Box::new(error))
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Delivery {
    /// Spans that the collector took.
    pub accepted: u64,
    /// Spans that it will never take.
    pub dropped: u64,
}

/// Sends batches of spans.
#[derive(Debug)]
pub struct Exporter {
    transport: Transport,
    metrics: Metrics,
    backoff: Backoff,
    condition: Condition,
    /// Batches that the collector took.
    taken: AtomicU64,
}

/// Spans that go together.
struct Piece {
    spans: EncodedSpans,
    /// What the collector had taken when this was made.
    taken_before: u64,
}

/// How offering a piece ended.
enum Offer {
    Taken(ExportTraceServiceResponse),
    /// It will not be taken whole.
    Refused(Failure),
    /// It was not taken for so long that it may be the reason.
    Stubborn(Failure),
}

impl Exporter {
    /// Asks nothing of the collector yet, but reads the files that the settings name.
    pub fn new(
        settings: &OtlpSettings,
        metrics: Metrics,
        backoff: Backoff,
    ) -> Result<Self, ExportSetupError> {
        Ok(Self {
            transport: Transport::new(settings)?,
            metrics,
            backoff,
            condition: Condition::default(),
            taken: AtomicU64::new(0),
        })
    }

    /// Returns once every span was taken, or given up for good. Dropping the future loses nothing
    /// but what was counted: the batch can be delivered again.
    pub async fn deliver(&self, spans: EncodedSpans) -> Delivery {
        let mut delivery = Delivery::default();
        let mut waiting = VecDeque::from([self.piece(spans)]);
        let mut is_first_loss = true;
        while let Some(piece) = waiting.pop_front() {
            let spans = piece.spans.count;
            if spans == 0 {
                continue;
            }
            let offer = self.offer(&piece.spans).await;
            let halves = match &offer {
                Offer::Taken(_) => None,
                Offer::Refused(_) | Offer::Stubborn(_) => halves(&piece.spans),
            };
            match (offer, halves) {
                (Offer::Taken(answer), _) => {
                    let rejected = self.heed(answer, spans);
                    delivery.accepted += spans - rejected;
                    delivery.dropped += rejected;
                }
                (Offer::Refused(_), Some([first, second])) => {
                    waiting.push_front(self.piece(second));
                    waiting.push_front(self.piece(first));
                }
                // The others first: they tell whether it is these spans or the collector.
                (Offer::Stubborn(_), Some(halves)) => {
                    waiting.extend(halves.map(|half| self.piece(half)));
                }
                (Offer::Stubborn(_), None)
                    if self.taken.load(Ordering::Relaxed) == piece.taken_before =>
                {
                    waiting.push_back(piece);
                }
                (Offer::Refused(failure) | Offer::Stubborn(failure), None) => {
                    delivery.dropped += spans;
                    self.metrics.spans_lost(SpanLoss::Refused, spans);
                    // A collector that refuses everything would fill the log.
                    if is_first_loss {
                        log_loss(&piece.spans, &failure);
                    }
                    is_first_loss = false;
                }
            }
        }
        if delivery.dropped > 1 {
            tracing::error!(
                spans = delivery.dropped,
                "spans are lost: the collector will never take them"
            );
        }
        delivery
    }

    fn piece(&self, spans: EncodedSpans) -> Piece {
        Piece {
            spans,
            taken_before: self.taken.load(Ordering::Relaxed),
        }
    }

    /// Tries until there is an answer that trying again won't change.
    async fn offer(&self, spans: &EncodedSpans) -> Offer {
        let body = self.transport.encode(spans.body.clone());
        let mut stubborn_tries = 0;
        loop {
            let failure = match self.transport.send(body.clone()).await {
                Ok(answer) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    self.condition.worked();
                    // An answer that can't be read is an answer all the same.
                    return Offer::Taken(Message::decode(answer).unwrap_or_default());
                }
                Err(failure) => failure,
            };
            self.metrics.export_failed();
            let course = failure.trouble.course();
            if course == Course::Halve {
                return Offer::Refused(failure);
            }
            let failures = self.condition.failed(&failure);
            tokio::time::sleep(self.pause(&failure, failures)).await;
            stubborn_tries = match course {
                Course::TryForAWhile => stubborn_tries + 1,
                _ => 0,
            };
            if stubborn_tries == STUBBORN_TRIES {
                return Offer::Stubborn(failure);
            }
        }
    }

    fn pause(&self, failure: &Failure, failures: u32) -> Duration {
        match (failure.trouble.course(), failure.after) {
            (Course::TrySlowly, _) => self.backoff.longest_pause(),
            (_, Some(after)) => after.max(self.backoff.pause(0)),
            (_, None) => self.backoff.pause(failures),
        }
    }

    /// Counts what was taken, and returns how many were not.
    fn heed(&self, answer: ExportTraceServiceResponse, spans: u64) -> u64 {
        let partial = answer.partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_spans)
            .unwrap_or(0)
            .min(spans);
        let words = one_line(&partial.error_message);
        if rejected > 0 {
            self.metrics.spans_lost(SpanLoss::Rejected, rejected);
            tracing::error!(
                spans = rejected,
                reason = words,
                "spans are lost: the collector rejected them"
            );
        } else if !words.is_empty() {
            self.condition.warned(words);
        }
        self.metrics.spans_exported(spans - rejected);
        rejected
    }
}

fn log_loss(spans: &EncodedSpans, failure: &Failure) {
    let request = spans.decode().unwrap_or_default();
    let name = spans_in(&request).next().map(|span| one_line(&span.name));
    tracing::error!(
        span = name,
        reason = %failure,
        "a span is lost: the collector will never take it"
    );
}
