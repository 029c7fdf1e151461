//! What joining two documents allocates, whatever their size: some pieces, and a payload as a whole
//! only if it is JSON and there is memory for it, which it asks for (`SharedMemory`).
//!
//! In a test program of its own, since it counts everything that the program allocates.

#![cfg(test)]

use std::{
    cell::Cell,
    io::{self, Cursor, Read, Write},
    pin::Pin,
    sync::Mutex,
};

use peak_alloc::PeakAlloc;
use serde_json::json;
use spanplane::{
    line::Line,
    memory::{Held, SharedMemory},
    publish::join_documents,
    reconcile::PayloadHasher,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Of a payload in a document; that of a larger one takes long to make without optimisations.
const LARGE: usize = 6 * 1024 * 1024;
/// For pieces, whatever the documents hold.
const ALLOWANCE: usize = 3 * 512 * 1024;

/// A payload as it stands in a document: the same over and over again.
#[derive(Clone, Copy)]
struct Payload {
    member: &'static str,
    begin: &'static str,
    repeated: &'static str,
    times: usize,
    end: &'static str,
    /// What `repeated` stands for.
    content: &'static [u8],
}

/// What repeats something without having it in memory.
struct Repeated {
    /// Some of it.
    block: Vec<u8>,
    position: usize,
    end: usize,
}

impl Read for Repeated {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let block = self.block.get(self.position % self.block.len()..);
        let block = block.unwrap_or_default();
        let bytes = out.len().min(block.len()).min(self.end - self.position);
        out[..bytes].copy_from_slice(&block[..bytes]);
        self.position += bytes;
        Ok(bytes)
    }
}

/// Refuses to hold anything, or notes what is held.
#[derive(Debug, Default)]
struct Asked {
    refuses: bool,
    most: Mutex<usize>,
}

impl SharedMemory for Asked {
    fn hold_payload(&self, bytes: usize) -> Option<Held> {
        let mut most = self.most.lock().unwrap();
        *most = bytes.max(*most);
        (!self.refuses).then(Held::untold)
    }

    fn hold(&self, _: usize) -> Pin<Box<dyn Future<Output = Held> + Send>> {
        unreachable!("nothing is held that is not a payload")
    }
}

/// Hashes what is written.
#[derive(Default)]
struct Sink(PayloadHasher);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const TIME: &str = "2026-01-01T00:00:00Z";

fn heading(revision: &str) -> String {
    let subject = "{\"type\":\"composite\",\"api_version\":\"\",\"kind\":\"\",\"namespace\":\"\",\
                   \"name\":\"\",\"uid\":\"\",\"composition\":\"\"}";
    format!("{{\"v\":1,\"trace_id\":\"t\",{revision}\"subject\":{subject},\"steps\":[\n")
}

/// Without its payload and what follows.
fn step(index: usize) -> String {
    format!(
        "{{\"index\":{index},\"name\":\"n\",\"iteration\":0,\"function\":\"f\",\
         \"span_id\":\"{index}\",\"timestamp\":\"{TIME}\",\"ended_at\":null,\"error\":null"
    )
}

fn payload(payload: Payload) -> impl Read {
    let Payload {
        member,
        begin,
        repeated,
        times,
        end,
        ..
    } = payload;
    let begin = format!(",\"{member}\":{begin}");
    let end = format!("{end},\"response\":null}}");
    let repeated = Repeated {
        block: repeated.repeat(1024).into_bytes(),
        position: 0,
        end: repeated.len() * times,
    };
    Cursor::new(begin).chain(repeated).chain(Cursor::new(end))
}

/// A document with this payload in its only step.
fn document(index: usize, it: Payload) -> impl Read {
    Cursor::new(heading("") + &step(index))
        .chain(payload(it))
        .chain(Cursor::new("\n]}\n"))
}

/// The document of both steps.
fn merged(it: Payload) -> impl Read {
    let between = format!(",\n{}", step(1));
    Cursor::new(heading("\"revision\":1,") + &step(0))
        .chain(payload(it))
        .chain(Cursor::new(between))
        .chain(payload(it))
        .chain(Cursor::new("\n]}\n"))
}

fn hash_of(mut document: impl Read) -> String {
    let mut sink = Sink::default();
    io::copy(&mut document, &mut sink).unwrap();
    sink.0.finish().to_string()
}

fn hash_of_content(it: Payload) -> String {
    let mut hasher = PayloadHasher::default();
    hasher.update(if it.member == "request" {
        it.begin.as_bytes()
    } else {
        b""
    });
    let content = it.content.repeat(it.times);
    hasher.update(&content);
    hasher.update(if it.member == "request" {
        it.end.as_bytes()
    } else {
        b""
    });
    hasher.finish().to_string()
}

/// The line of the late part, which need not be right.
fn late_line() -> Line {
    let line = json!({
        "v": 1, "trace_id": "t", "otel_trace_id": "", "root_span_id": "",
        "previous_trace_id": null, "started_at": TIME, "ended_at": TIME, "duration_ms": 0.0,
        "subject": {
            "type": "composite", "api_version": "", "kind": "", "namespace": "", "name": "",
            "uid": "", "composition": "",
        },
        "status": "ok", "changed": true, "steps": [],
        "object": {"key": "", "state": "stored", "bytes": 0},
        "resources": {"create": [], "update": [], "delete": [], "unchanged": 0},
    });
    serde_json::from_value(line).unwrap()
}

/// Joins two documents that have this payload each; returns what that allocated at most.
fn join(it: Payload, memory: &Asked) -> usize {
    let expected = hash_of(merged(it));
    let expected_ref = hash_of_content(it);
    let line = late_line();
    let mut sink = Sink::default();
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let joined = join_documents(
        [&mut || Ok(Box::new(document(0, it))), &mut || {
            Ok(Box::new(document(1, it)))
        }],
        &line,
        None,
        false,
        memory,
        &Cell::new(0),
        &mut sink,
    );
    let peak = ALLOCATOR.peak_usage() - before;
    let joined = joined.unwrap().expect("they can be joined");
    assert_eq!(sink.0.finish().to_string(), expected, "{}", it.member);
    for step in &joined.steps {
        let payload = step.request.as_ref().unwrap();
        assert_eq!(payload.sha256, expected_ref, "{}", it.member);
        assert!(payload.pointer.ends_with(it.member), "{}", payload.pointer);
    }
    println!(
        "{} of {} x {}: {peak} bytes",
        it.member,
        it.times,
        it.repeated.len()
    );
    peak
}

#[test]
fn memory_does_not_depend_on_what_is_joined() {
    let texts = [
        // Six times its size in the document.
        Payload {
            member: "request_text",
            begin: "\"",
            repeated: "\\u0001",
            times: LARGE / 6,
            end: "\"",
            content: b"\x01",
        },
        Payload {
            member: "request_text",
            begin: "\"",
            repeated: "\u{e9}\\n",
            times: LARGE / 4,
            end: "\"",
            content: "\u{e9}\n".as_bytes(),
        },
        Payload {
            member: "request_base64",
            begin: "\"",
            repeated: "/v8A",
            times: LARGE / 4,
            end: "\"",
            content: b"\xfe\xff\0",
        },
    ];
    for text in texts {
        let memory = Asked::default();
        let peak = join(text, &memory);
        assert!(peak < ALLOWANCE, "{peak}");
        assert_eq!(*memory.most.lock().unwrap(), 0);
    }
    let json = Payload {
        member: "request",
        begin: "{\"a\":[0",
        repeated: ",{\"b\":1}",
        times: LARGE / 8,
        end: "]}",
        content: b",{\"b\":1}",
    };
    let size = json.begin.len() + json.repeated.len() * json.times + json.end.len();
    let memory = Asked::default();
    let peak = join(json, &memory);
    assert_eq!(*memory.most.lock().unwrap(), size);
    // What is held is asked for twice.
    assert!(peak < 2 * size, "{peak}");
    let refusing = Asked {
        refuses: true,
        ..Asked::default()
    };
    let peak = join(json, &refusing);
    assert!(peak < ALLOWANCE, "{peak}");
}
