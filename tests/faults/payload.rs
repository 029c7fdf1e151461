//! What is sent, and what has to be in the store afterwards.
//!
//! Invariant: a payload holds canaries only in places that redaction covers. What has to be stored
//! is the same text with `**REDACTED**` in their places, and in that of the note if the sidecar was
//! told to redact it. In small pipelines the first response is a payload from the table of places
//! instead, one after the other.

use std::{
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use memchr::memmem;
use spanplane::{
    reconcile::PayloadHash,
    redact::{REDACTED, Redactor},
};

use crate::places::{Expected, Place, places};

/// What every canary begins with, and nothing else has.
const CANARY: &str = "c4n4ry";
/// The same in base64.
const ENCODED_CANARY: &str = "YzRuNHJ5";

/// Pipelines with larger requests are about size.
const MAX_PLANTED_BYTES: usize = 16 << 10;

/// Whether a secret got out.
pub(crate) fn holds_canary(text: &[u8]) -> bool {
    let found = |canary: &str| memmem::find(text, canary.as_bytes()).is_some();
    found(CANARY) || found(ENCODED_CANARY)
}

/// A payload with a secret in each place that redaction covers by default.
static PLANTED: LazyLock<Vec<Payload>> = LazyLock::new(|| {
    let defaults = |place: &&Place| {
        place.expected == Expected::Covered
            && place.flags.pointers.is_empty()
            && place.flags.keys.is_empty()
            && place.flags.secret_keys
    };
    let places = places();
    let covered = places.iter().filter(defaults).enumerate();
    covered
        .map(|(number, place)| planted(number, place))
        .collect()
});

fn planted(number: usize, place: &Place) -> Payload {
    let sent = Bytes::from(place.payload(&format!("{CANARY}-{number:03}")));
    #[expect(clippy::expect_used, reason = "there is no rule that could be wrong")]
    let redactor = Redactor::new::<&str>(&[], &[]).expect("no rules are valid");
    let stored = PayloadHash::of(redactor.redact(&sent).payload.as_bytes());
    Payload {
        sent,
        stored: [stored; 2],
    }
}

/// Of every XR; all of them short, see the store's prefix.
pub(crate) const API_VERSION: &str = "e.org/v1";
pub(crate) const KIND: &str = "F";
pub(crate) const NAMESPACE: &str = "ns";

const NOTE: &str = "handle with care";
const ROW_BYTES: usize = 80;

/// A payload and what may be stored of it.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) sent: Bytes,
    /// Without and with the note redacted.
    pub(crate) stored: [PayloadHash; 2],
}

/// The payloads of one call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) index: usize,
    pub(crate) iteration: usize,
    pub(crate) request: Payload,
    pub(crate) response: Payload,
}

/// Rows that fill a payload up, made once for all XRs of a size.
#[derive(Clone, Debug)]
pub(crate) struct Filling(Arc<str>);

impl Filling {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut rows = String::with_capacity(bytes);
        let mut rng = fastrand::Rng::with_seed(bytes as u64);
        let mut separator = "";
        while rows.len() + ROW_BYTES < bytes {
            let (a, b, port) = (rng.u8(..), rng.u8(..), rng.u16(1024..));
            write_to(
                &mut rows,
                format_args!(
                    "{separator}{{\"cidr\":\"10.{a}.{b}.0/24\",\"protocol\":\"tcp\",\"port\":{port},\"group\":\"sg-{:08x}\"}}",
                    rng.u32(..)
                ),
            );
            separator = ",";
        }
        Self(rows.into())
    }
}

/// What the payloads of a reconcile are made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'s> {
    pub(crate) xr: &'s str,
    pub(crate) uid: &'s str,
    /// How often the XR changed.
    pub(crate) version: u32,
    pub(crate) filling: &'s Filling,
    /// The last call returns a fatal result.
    pub(crate) is_fatal: bool,
}

impl Source<'_> {
    /// The payloads of a pipeline. A function that asks for more runs twice.
    pub(crate) fn calls(self, steps: usize, runs_twice: Option<usize>) -> Vec<Call> {
        let mut calls = Vec::new();
        for index in 0..steps {
            let iterations = if runs_twice == Some(index) { 2 } else { 1 };
            for iteration in 0..iterations {
                calls.push(Call {
                    index,
                    iteration,
                    request: self.request(index, iteration),
                    response: self.response(
                        index,
                        iteration,
                        index + 1 == steps && iteration + 1 == iterations,
                    ),
                });
            }
        }
        calls
    }

    fn request(self, index: usize, iteration: usize) -> Payload {
        let Self {
            xr, uid, version, ..
        } = self;
        let mut text = Text::default();
        text.push(&format!(
            "{{\"meta\":{{\"tag\":\"{xr}-{version}-{index}-{iteration}\"}},\"observed\":{{\"composite\":{{\"resource\":{{\
             \"apiVersion\":\"{API_VERSION}\",\"kind\":\"{KIND}\",\"metadata\":{{\"name\":\"{xr}\",\"namespace\":\"{NAMESPACE}\",\
             \"uid\":\"{uid}\",\"generation\":{version}}},\"spec\":{{\"size\":{version}}}}},\"connectionDetails\":{{\"endpoint\":"
        ));
        text.push_secret(&format!("\"{CANARY}-endpoint-{xr}\""));
        text.push("}},\"resources\":{\"secret\":{\"resource\":");
        self.push_secret_object(&mut text);
        text.push("},\"bulk\":");
        self.push_bulk(&mut text);
        text.push(&format!(
            "}}}},\"desired\":{{}},\"input\":{{\"apiVersion\":\"example.org/v1\",\"kind\":\"Input\",\"step\":{index},\"note\":\"{NOTE}\"}}}}"
        ));
        text.finish()
    }

    fn response(self, index: usize, iteration: usize, is_last: bool) -> Payload {
        let Self { xr, version, .. } = self;
        if index == 0 && !is_last && self.filling.0.len() <= MAX_PLANTED_BYTES {
            let [number, ..] = PayloadHash::of(format!("{xr}-{version}").as_bytes()).0;
            let planted = PLANTED.iter().cycle().nth(number.into());
            if let Some(planted) = planted {
                return planted.clone();
            }
        }
        let mut text = Text::default();
        text.push(&format!(
            "{{\"meta\":{{\"tag\":\"{xr}-{version}-{index}-{iteration}\",\"ttl\":\"60s\"}},\"desired\":{{\"resources\":{{\"secret\":{{\"resource\":"
        ));
        self.push_secret_object(&mut text);
        text.push("},\"bulk\":");
        self.push_bulk(&mut text);
        let severity = if is_last && self.is_fatal {
            "SEVERITY_FATAL"
        } else {
            "SEVERITY_NORMAL"
        };
        text.push(&format!(
            "}}}},\"results\":[{{\"severity\":\"{severity}\",\"message\":\"step {index} ran\"}}]}}"
        ));
        text.finish()
    }

    fn push_secret_object(self, text: &mut Text) {
        let Self { xr, version, .. } = self;
        text.push(
            "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"access\",\"annotations\":\
             {\"kubectl.kubernetes.io/last-applied-configuration\":",
        );
        text.push_secret(&format!(
            "\"{{\\\"apiVersion\\\":\\\"v1\\\",\\\"kind\\\":\\\"Secret\\\",\\\"data\\\":{{\\\"key\\\":\\\"{CANARY}-applied-{xr}\\\"}}}}\""
        ));
        text.push("}},\"data\":{\"key\":");
        text.push_secret(&format!("\"{CANARY}-data-{xr}-{version}\""));
        text.push("}}");
    }

    fn push_bulk(self, text: &mut Text) {
        text.push(&format!(
            "{{\"resource\":{{\"apiVersion\":\"example.org/v1\",\"kind\":\"Bulk\",\"metadata\":{{\"name\":\"bulk\"}},\"spec\":{{\"size\":{},\"rows\":[",
            self.version
        ));
        text.push(&self.filling.0);
        text.push("]}}}");
    }
}

/// A payload as it is sent, and as it has to be stored.
#[derive(Default)]
struct Text {
    sent: String,
    stored: String,
}

impl Text {
    fn push(&mut self, text: &str) {
        self.sent.push_str(text);
        self.stored.push_str(text);
    }

    fn push_secret(&mut self, value: &str) {
        self.sent.push_str(value);
        write_to(&mut self.stored, format_args!("\"{REDACTED}\""));
    }

    fn finish(self) -> Payload {
        let note = format!("\"note\":\"{NOTE}\"");
        let stored = PayloadHash::of(self.stored.as_bytes());
        let without_note = if self.stored.contains(&note) {
            let redacted = format!("\"note\":\"{REDACTED}\"");
            PayloadHash::of(self.stored.replace(&note, &redacted).as_bytes())
        } else {
            stored
        };
        Payload {
            sent: self.sent.into(),
            stored: [stored, without_note],
        }
    }
}

fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    #[expect(clippy::expect_used, reason = "a `String` takes everything")]
    out.write_fmt(text).expect("a `String` takes everything");
}
