//! Spans to a collector, by OTLP.
//!
//! Batches wait on disk and are sent one at a time. Invariant: a batch is done with only when the
//! collector took its spans, or said of each that is missing that it will never take it; a collector
//! that is away, overloaded or set up wrongly is waited for.
//!
//! ```text
//! settings ◀── variables         what is sent, where, as whom
//! SpanSender ──▶ Exporter        which batch is next, and what becomes of it
//! Exporter ──▶ transport         one try, by gRPC or HTTP ──▶ failure: what it means
//!     └──▶ halving               finds the spans that are refused
//! own_metrics ──▶ transport      the sidecar's own metrics, in the library's hands
//! ```

mod condition;
mod failure;
mod halving;
mod own_metrics;
mod resource;
mod sampler;
mod sending;
mod settings;
mod tls_files;
mod transport;
mod variables;

use std::{collections::VecDeque, error::Error};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

use self::{
    condition::Condition,
    failure::{Course, Failure, one_line},
    halving::{halves, single_out},
    tls_files::TlsFileError,
    transport::Transport,
};
pub use self::{
    own_metrics::OwnMetrics,
    resource::{resource_from_variables, sdk_resource},
    sampler::Sampler,
    sending::SpanSender,
    settings::{Destination, OtlpSettings, Signal},
    variables::{IgnoredSetting, Lookup},
};
use crate::{
    metrics::{Metrics, SpanLoss},
    spans::EncodedSpans,
};

/// A collector that takes nothing and refuses so many spans one by one refuses everything.
const REFUSES_EVERYTHING: usize = 8;
/// A collector that takes none of so many parts in a row fails at more than a few spans.
const MOST_IN_VAIN: u32 = 8;
/// After so many calls about one batch the others have their turn.
const MOST_CALLS: u32 = 64;

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
enum ExportSetupError {
    #[error("cannot set up TLS for OTLP")]
    TlsFile(#[from] TlsFileError),
    #[error("cannot set up a client for OTLP")]
    Client(#[source] Box<dyn Error + Send + Sync>),
}

impl ExportSetupError {
    fn client(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Client(Box::new(error))
    }
}

/// Offers spans to the collector.
#[derive(Debug)]
pub struct Exporter {
    transport: Transport,
    metrics: Metrics,
    condition: Condition,
}

/// What became of spans that were offered.
#[derive(Debug, Default)]
struct Offer {
    /// How many were in calls that the collector took.
    taken: u64,
    /// Those that it will never take, one by one, and why not.
    refused: Vec<EncodedSpans>,
    refusal: Option<Failure>,
    /// Those that it may take later, and why not now.
    left: Vec<EncodedSpans>,
    failure: Option<Failure>,
    /// The collector took others, and none of those that are left when they were offered one by one.
    is_sifted: bool,
}

impl Exporter {
    /// Asks nothing of the collector yet, but reads the files that the settings name.
    pub fn new(settings: &OtlpSettings, metrics: Metrics) -> Self {
        Self {
            transport: Transport::new(settings),
            metrics,
            condition: Condition::default(),
        }
    }

    /// Offers spans, without waiting: in halves where they are refused, until it is known which of
    /// them are, and until something fails that may pass. A collector that is not known to take
    /// anything is not believed when it refuses everything.
    async fn offer(&self, spans: &EncodedSpans, takes_others: bool) -> Offer {
        let mut offer = Offer::default();
        let mut waiting = VecDeque::from([spans.clone()]);
        while let Some(piece) = waiting.pop_front() {
            if piece.count == 0 {
                continue;
            }
            let failure = match self.try_once(&piece).await {
                Ok(()) => {
                    offer.taken += piece.count;
                    continue;
                }
                Err(failure) => failure,
            };
            let is_refused = failure.trouble.course() == Course::Halve;
            if is_refused && let Some([first, second]) = halves(&piece) {
                waiting.push_front(second);
                waiting.push_front(first);
            } else if is_refused {
                offer.refused.push(piece);
                offer.refusal = Some(failure);
                let is_believed = takes_others || offer.taken > 0;
                if !is_believed && offer.refused.len() >= REFUSES_EVERYTHING {
                    break;
                }
            } else {
                offer.left.push(piece);
                offer.left.extend(waiting.drain(..));
                offer.failure = Some(failure);
            }
        }
        let is_believed = takes_others || offer.taken > 0;
        if !is_believed && let Some(refusal) = offer.refusal {
            self.condition.failed(&refusal);
            return Offer {
                left: vec![spans.clone()],
                failure: Some(refusal),
                ..Offer::default()
            };
        }
        offer
    }

    /// Offers the parts of a batch that the collector has just failed at. A single span goes first,
    /// any of them, or so many: unless one is taken, nothing else is tried. The others go in halves,
    /// until it is known which spans it fails at. `None` for a batch that has no parts.
    async fn sift(&self, spans: &EncodedSpans, singles: u32) -> Option<Offer> {
        let mut failed = None;
        let mut found = None;
        for _ in 0..singles {
            let number = fastrand::u64(..spans.count.max(1));
            let (single, others) = single_out(spans, usize::try_from(number).ok()?)?;
            match self.try_once(&single).await {
                Ok(()) => {
                    found = Some((single, others));
                    break;
                }
                Err(failure) => {
                    let may_go_on = failure.may_be_about_spans();
                    failed = Some(failure);
                    if !may_go_on {
                        break;
                    }
                }
            }
        }
        let Some((single, others)) = found else {
            return Some(Offer {
                left: vec![spans.clone()],
                failure: Some(failed?),
                ..Offer::default()
            });
        };
        let mut offer = Offer {
            taken: single.count,
            is_sifted: true,
            ..Offer::default()
        };
        let mut in_vain = 0;
        // Larger parts first, which finds spans that it takes with few calls.
        let mut waiting = VecDeque::from(others);
        for calls in 1.. {
            let Some(piece) = waiting.pop_front() else {
                break;
            };
            let Err(failure) = self.try_once(&piece).await else {
                offer.taken += piece.count;
                in_vain = 0;
                continue;
            };
            in_vain += 1;
            let is_refused = failure.trouble.course() == Course::Halve;
            let may_go_on = is_refused || failure.may_be_about_spans();
            if !may_go_on || in_vain > MOST_IN_VAIN || calls > MOST_CALLS {
                offer.left.push(piece);
                offer.left.extend(waiting.drain(..));
                offer.failure = Some(failure);
                offer.is_sifted = false;
            } else if let Some(halves) = halves(&piece) {
                waiting.extend(halves);
            } else if is_refused {
                offer.refused.push(piece);
                offer.refusal = Some(failure);
            } else {
                offer.left.push(piece);
                offer.failure = Some(failure);
            }
        }
        Some(offer)
    }

    async fn try_once(&self, spans: &EncodedSpans) -> Result<(), Failure> {
        let body = self.transport.encode(spans.body.clone());
        match self.transport.send(body, self.metrics.panics()).await {
            Ok(answer) => {
                self.condition.worked();
                // An answer that can't be read is an answer all the same.
                self.heed(Message::decode(answer).unwrap_or_default(), spans.count);
                Ok(())
            }
            Err(failure) => {
                self.metrics.export_failed();
                if failure.trouble.course() != Course::Halve {
                    self.condition.failed(&failure);
                }
                Err(failure)
            }
        }
    }

    /// Nothing that was offered waits to be offered again.
    fn all_is_well(&self) {
        self.condition.recovered();
    }

    /// Counts what was taken, and what was not.
    fn heed(&self, answer: ExportTraceServiceResponse, spans: u64) {
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
    }
}
