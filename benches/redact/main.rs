//! What redaction costs, on what a real Crossplane emitted.
//!
//! ```sh
//! cargo bench --bench redact              # every capture, and payloads made for the purpose
//! cargo bench --bench redact -- network   # those with this in their names
//! ```
//!
//! Each payload goes the way that it goes when a reconcile is published: one that has nothing to
//! hide is only looked at, any other is redacted. `scanned` is how many of them were, `values` how
//! many values went. The figures are nanoseconds per byte of payload, of the best of many rounds:
//!
//! - `default`: what the program and the Helm values do;
//! - `no keys`: without the keys that name a secret (`--redact-secret-keys=false`);
//! - `pattern`: with `--redact-key (?i)password|token` on top, which every payload is scanned for;
//! - `validate`: for comparison, checking that it is JSON, which redaction does before it scans.

#![expect(
    clippy::cast_precision_loss,
    reason = "nothing that is counted here comes near 2⁵²"
)]
#![expect(clippy::print_stdout, reason = "this is what it is for")]

mod made;

use std::{
    env, fs,
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use serde::de::IgnoredAny;
use spanplane::{
    capture::{read_capture, step_of},
    redact::Redactor,
};

const CAPTURES: [&str; 8] = [
    "broken",
    "dropper",
    "network",
    "operation",
    "requirements",
    "secrets",
    "steady-idle",
    "steady-start",
];
/// How long the same is done again.
const LONG_ENOUGH: Duration = Duration::from_millis(400);

/// What one way of redacting did.
struct Figures {
    scanned: usize,
    values: u64,
    nanoseconds_per_byte: f64,
}

fn main() -> anyhow::Result<()> {
    let wanted = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| name.contains(wanted));
    let default = Redactor::new::<&str>(&[], &[])?;
    let without_keys = default.clone().with_secret_keys(false);
    let pattern = Redactor::new(&[], &["(?i)password|token"])?;
    println!(
        "{:22} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "payloads",
        "number",
        "MB",
        "scanned",
        "values",
        "default",
        "no keys",
        "pattern",
        "validate"
    );
    let captures = CAPTURES.map(|name| (name, captured(name)));
    let made = made::payloads().map(|(name, payloads)| (name, Ok(payloads)));
    for (name, payloads) in captures.into_iter().chain(made) {
        if !is_wanted(name) {
            continue;
        }
        let payloads = payloads?;
        let bytes: usize = payloads.iter().map(Bytes::len).sum();
        let first = redact_all(&default, &payloads, bytes);
        println!(
            "{name:22} {:>8} {:>8.2} {:>8} {:>8} {:>8.3} {:>8.3} {:>8.3} {:>8.3}",
            payloads.len(),
            bytes as f64 / 1e6,
            first.scanned,
            first.values,
            first.nanoseconds_per_byte,
            redact_all(&without_keys, &payloads, bytes).nanoseconds_per_byte,
            redact_all(&pattern, &payloads, bytes).nanoseconds_per_byte,
            best_of(bytes, || validate_all(&payloads)),
        );
    }
    Ok(())
}

fn captured(name: &str) -> anyhow::Result<Vec<Bytes>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let path = folder.join(format!("{name}.jsonl.zst"));
    let compressed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records = read_capture(&compressed)?;
    Ok(records
        .iter()
        .map(|record| step_of(record).payload)
        .collect())
}

/// As a document is written.
fn redact_all(redactor: &Redactor, payloads: &[Bytes], bytes: usize) -> Figures {
    let (mut scanned, mut values) = (0, 0);
    let nanoseconds_per_byte = best_of(bytes, || {
        (scanned, values) = (0, 0);
        for payload in payloads {
            if !redactor.has_nothing_to_hide(black_box(payload)) {
                scanned += 1;
                values += black_box(redactor.redact(payload)).values;
            }
        }
    });
    Figures {
        scanned,
        values,
        nanoseconds_per_byte,
    }
}

fn validate_all(payloads: &[Bytes]) {
    for payload in payloads {
        black_box(serde_json::from_slice::<IgnoredAny>(black_box(payload)).is_ok());
    }
}

fn best_of(bytes: usize, mut work: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut best = Duration::MAX;
    while began.elapsed() < LONG_ENOUGH {
        let round = Instant::now();
        work();
        best = best.min(round.elapsed());
    }
    best.as_secs_f64() * 1e9 / bytes as f64
}
