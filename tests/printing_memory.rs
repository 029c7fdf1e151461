//! What printing a message allocates, whatever its payload: a few megabytes.
//!
//! In a test program of its own, since it counts everything that the program allocates.

#![cfg(test)]

use std::io;

use bytes::Bytes;
use peak_alloc::PeakAlloc;
use spanplane::{
    decode::StepMeta,
    print::{PrintFormat, PrintedMessage, PrintedPayload},
    record::RecordKind,
    redact::CleanPayload,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const LIMIT: usize = 8 * 1024 * 1024;
/// As much as is printed.
const MOST: usize = 256 * 1024;

/// A list of the same over and over again, in lists.
fn list_of(item: &str, items: usize, depth: usize) -> CleanPayload {
    let items = vec![item; items].join(",");
    let [opening, closing] = ["[", "]"].map(|bracket| bracket.repeat(depth));
    CleanPayload::Json(format!("{opening}[{items}]{closing}").into())
}

#[test]
fn memory_is_bounded_whatever_the_payload() {
    let text = |text: &str, bytes: usize| text.repeat(bytes / text.len());
    let cases = [
        ("numbers", list_of("1", 16_000, 0)),
        ("too many numbers", list_of("1", MOST / 2 - 1, 0)),
        ("very many numbers", list_of("1", 16 * MOST, 0)),
        ("objects", list_of(r#"{"a":1}"#, 8_000, 0)),
        ("too many objects", list_of(r#"{"a":1}"#, MOST / 8, 0)),
        ("numbers far inside", list_of("1", 16_000, 120)),
        (
            "a long text far inside",
            list_of(&format!("\"{}\"", text("a ", MOST - 512)), 1, 120),
        ),
        (
            "many lines far inside",
            list_of(&format!("\"{}\"", text("a\\n", MOST - 512)), 1, 120),
        ),
        ("angles", CleanPayload::Text(text("<", MOST).into())),
        (
            "large text",
            CleanPayload::Text(text("<", 64 * MOST).into()),
        ),
        ("bytes", CleanPayload::Binary(vec![0xff; MOST].into())),
        (
            "large bytes",
            CleanPayload::Binary(vec![0xff; 64 * MOST].into()),
        ),
    ];
    for (name, payload) in cases {
        for format in [PrintFormat::Json, PrintFormat::Text] {
            let before = ALLOCATOR.current_usage();
            ALLOCATOR.reset_peak_usage();
            let came = match &payload {
                CleanPayload::Json(bytes)
                | CleanPayload::Text(bytes)
                | CleanPayload::Binary(bytes) => bytes.clone(),
                CleanPayload::Empty => Bytes::new(),
            };
            let message = PrintedMessage {
                kind: RecordKind::Request,
                meta: &StepMeta::default(),
                payload: &PrintedPayload::of(&came, |_| payload.clone()),
                error: "",
            };
            format.print(message, &mut io::sink()).unwrap();
            let peak = ALLOCATOR.peak_usage() - before;
            println!("{name} as {format:?}: {peak} bytes");
            assert!(peak < LIMIT, "{name} as {format:?}: {peak} bytes");
        }
    }
}
