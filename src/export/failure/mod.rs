//! What it means that a collector did not take a batch, and what to do about it.
//!
//! Collectors answer in codes of gRPC or HTTP; this is the one place that reads them. Invariant:
//! only an answer about *these spans* has them given up. Whatever else is wrong passes, or
//! somebody can put it right while the batch waits.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use chrono::DateTime;
use prost::Message as _;
use reqwest::{
    StatusCode,
    header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use tonic::{Code, Status};

/// However long a collector says to wait.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// As much of a collector's words as goes into a log.
const DETAIL_CHARACTERS: usize = 300;
/// How gRPC's implementations say that a message is too large; some by the code of an overload.
const TOO_LARGE_WORDS: [&str; 3] = [
    "larger than max",
    "exceeds maximum size",
    "length too large",
];

/// What is wrong, as far as the collector tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// The client can't be set up: certificates or keys are missing or not usable.
    NotSetUp,
    Unreachable,
    Busy,
    Failing,
    NotAuthenticated,
    AccessDenied,
    WrongAddress,
    /// This batch is too large.
    TooLarge,
    /// There is something in this batch that the collector will never take.
    Refused,
}

/// What to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Course {
    /// It will pass.
    TryAgain,
    /// It may pass, or be about these spans.
    TryForAWhile,
    /// Somebody has to do something.
    TrySlowly,
    /// It will never be taken whole.
    Halve,
}

impl Trouble {
    pub(super) fn course(self) -> Course {
        match self {
            Self::Unreachable | Self::Busy => Course::TryAgain,
            Self::Failing => Course::TryForAWhile,
            Self::NotSetUp | Self::NotAuthenticated | Self::AccessDenied | Self::WrongAddress => {
                Course::TrySlowly
            }
            Self::TooLarge | Self::Refused => Course::Halve,
        }
    }

    /// What a person can do about it.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::NotSetUp => {
                "check the files that OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and \
                 _CLIENT_KEY name; if the system has no certificates, name a file of them"
            }
            Self::Unreachable => {
                "check OTEL_EXPORTER_OTLP_ENDPOINT, the network policy, and for https:// \
                 OTEL_EXPORTER_OTLP_CERTIFICATE"
            }
            Self::Busy => "give the collector more room, or set OTEL_TRACES_SAMPLER",
            Self::Failing => "see the collector's log",
            Self::NotAuthenticated => "check the credentials in OTEL_EXPORTER_OTLP_HEADERS",
            Self::AccessDenied => "allow the credentials in OTEL_EXPORTER_OTLP_HEADERS to write",
            Self::WrongAddress => {
                "check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_PROTOCOL: gRPC is on \
                 port 4317 as a rule, http/protobuf on 4318 under /v1/traces"
            }
            Self::TooLarge | Self::Refused => "see the reason",
        }
    }
}

/// A batch that was not taken.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct Failure {
    pub(super) trouble: Trouble,
    /// The collector said so, or something in between.
    is_answer: bool,
    /// How long the collector wants to be left alone.
    pub(super) after: Option<Duration>,
    /// In the collector's words, on one line.
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(trouble: Trouble, detail: &str) -> Self {
        Self {
            trouble,
            is_answer: false,
            after: None,
            detail: one_line(detail),
        }
    }

    /// Whether some spans may be what a collector answers so for, although it takes others. One that
    /// is too busy is not asked more often to find that out.
    pub(super) fn may_be_about_spans(&self) -> bool {
        self.is_answer && matches!(self.trouble, Trouble::Failing | Trouble::Unreachable)
    }

    /// There is no client to ask the collector with.
    pub(super) fn not_set_up(error: &(dyn Error + 'static)) -> Self {
        Self::new(Trouble::NotSetUp, &chain(error))
    }

    /// The collector was never asked, or never answered.
    pub(super) fn unreachable(error: &(dyn Error + 'static)) -> Self {
        Self::new(Trouble::Unreachable, &chain(error))
    }

    pub(super) fn from_grpc(status: &Status) -> Self {
        // Only what did not come from the collector has a cause that is known here.
        if let Some(source) = status.source() {
            return Self::unreachable(source);
        }
        let trouble = match status.code() {
            Code::ResourceExhausted | Code::OutOfRange if says_too_large(status.message()) => {
                Trouble::TooLarge
            }
            Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::Unavailable => {
                Trouble::Unreachable
            }
            Code::ResourceExhausted => Trouble::Busy,
            Code::Unauthenticated => Trouble::NotAuthenticated,
            Code::PermissionDenied => Trouble::AccessDenied,
            Code::Unimplemented | Code::NotFound => Trouble::WrongAddress,
            Code::InvalidArgument | Code::AlreadyExists => Trouble::Refused,
            // NOTE: a collector answers INTERNAL both when it is broken and when its exporter
            // will never take these spans.
            Code::Ok
            | Code::Unknown
            | Code::Internal
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::DataLoss => Trouble::Failing,
        };
        Self {
            is_answer: true,
            after: retry_info(status.details()).map(|after| after.min(LONGEST_WAIT)),
            ..Self::new(
                trouble,
                &format!("{:?}: {}", status.code(), status.message()),
            )
        }
    }

    /// `body` may be cut.
    pub(super) fn from_http(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let words = words_of(headers, body);
        let trouble = match status.as_u16() {
            // Go and nginx answer so when they expected TLS.
            400 if words.contains("HTTP request") && words.contains("HTTPS") => {
                Trouble::WrongAddress
            }
            400 | 422 => Trouble::Refused,
            401 => Trouble::NotAuthenticated,
            403 => Trouble::AccessDenied,
            408 | 502..=504 => Trouble::Unreachable,
            413 => Trouble::TooLarge,
            429 => Trouble::Busy,
            500.. => Trouble::Failing,
            _ => Trouble::WrongAddress,
        };
        Self {
            is_answer: true,
            after: retry_after(headers).map(|after| after.min(LONGEST_WAIT)),
            ..Self::new(trouble, &format!("{status}: {words}"))
        }
    }
}

/// google.rpc.Status, which errors come in.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// google.rpc.RetryInfo.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

fn retry_info(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let is_it = |detail: &&prost_types::Any| detail.type_url.ends_with("google.rpc.RetryInfo");
    let detail = status.details.iter().find(is_it)?;
    let delay = RetryInfo::decode(detail.value.as_slice())
        .ok()?
        .retry_delay?;
    let nanos = u32::try_from(delay.nanos).ok()?;
    let nanos = Duration::from_nanos(u64::from(nanos));
    Duration::from_secs(u64::try_from(delay.seconds).ok()?).checked_add(nanos)
}

/// `Retry-After`: seconds, or a date; that is compared with the collector's own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let after = text(RETRY_AFTER)?.trim();
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = DateTime::parse_from_rfc2822(after).ok()?;
    let now = DateTime::parse_from_rfc2822(text(DATE)?).ok()?;
    until.signed_duration_since(now).to_std().ok()
}

fn says_too_large(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    TOO_LARGE_WORDS.iter().any(|words| message.contains(words))
}

/// What the body says.
fn words_of(headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind.is_some_and(|kind| kind.starts_with(b"application/x-protobuf")) {
        let status = RpcStatus::decode(Bytes::copy_from_slice(body));
        status.map(|status| status.message).unwrap_or_default()
    } else {
        String::from_utf8_lossy(body).into_owned()
    }
}

/// An error and what is behind it, as long as that adds something.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        next = source.source();
    }
    words
}

pub(super) fn one_line(text: &str) -> String {
    let printable = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    let line: String = text
        .chars()
        .take(DETAIL_CHARACTERS)
        .map(printable)
        .collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests;
