//! Where everything is in a stored document, found in one pass over it.
//!
//! Invariant: memory holds the heads of the steps, up to [`MAX_HEADS_BYTES`], and never a payload: a
//! document may be far larger than what the process may use.

use std::{
    io::{self, BufRead as _, BufReader, Read},
    ops::Range,
};

use memchr::memchr2;

use super::document::{FORMS, Heading, StepHead};
use crate::{
    fingerprint::{Fingerprint, Fingerprinter},
    line::{Line, LineStep, PayloadRef},
    pace::breathe,
    record::RecordKind,
};

/// Everything but payloads. A thousand steps take some 300 KB.
const MAX_HEADS_BYTES: usize = 8 * 1024 * 1024;
/// The names of members are short.
const MAX_NAME_BYTES: usize = 1024;
const BUFFER_BYTES: usize = 128 * 1024;

/// A document without its payloads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Outline {
    pub(super) heading: Heading<'static>,
    pub(super) steps: Vec<OutlinedStep>,
}

/// A step without its payloads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct OutlinedStep {
    pub(super) head: StepHead<'static>,
    pub(super) request: Option<Slot>,
    pub(super) response: Option<Slot>,
}

/// Where a payload is.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) form: &'static str,
    /// In the decompressed document.
    pub(super) range: Range<u64>,
    fingerprint: Fingerprint,
}

/// Two are equal if they hold the same, wherever that is.
impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        (self.form, self.fingerprint) == (other.form, other.fingerprint)
    }
}

impl Eq for Slot {}

impl Outline {
    /// `None` if this is not a document of this version, or can't be read.
    pub(super) fn read(document: impl Read) -> Option<Self> {
        let scan = Scan {
            input: BufReader::with_capacity(BUFFER_BYTES, document),
            position: 0,
            room: MAX_HEADS_BYTES,
        };
        scan.document().ok()
    }

    /// The outline of a reconcile whose line this is, and whose payloads are the same. `None` if
    /// they aren't all here.
    pub(super) fn into_beginning(self, line: &Line) -> Option<Self> {
        let mut known = self.steps.into_iter();
        let steps = line.steps.iter().map(|step| {
            // What was merged into this document since is not a part of the other one.
            let mut same = known.find(|known| known.is_equal_to(step))?;
            same.request = same.request.filter(|_| step.request.is_some());
            if step.ended_at.is_none() {
                same.response = None;
                same.head.error = None;
            }
            same.head.span_id = step.span_id.clone().into();
            same.head.timestamp = step.started_at.rfc3339().into();
            same.head.ended_at = step.ended_at.map(|ended_at| ended_at.rfc3339().into());
            same.head.waited_until = None;
            same.head.interrupted = false;
            Some(same)
        });
        Some(Self {
            steps: steps.collect::<Option<_>>()?,
            heading: Heading {
                trace_id: line.trace_id.clone().into(),
                revision: line.revision,
                ..self.heading
            },
        })
    }
}

impl OutlinedStep {
    /// Whether a step of another reconcile has the payloads of this one, as far as their sizes tell.
    fn is_equal_to(&self, step: &LineStep) -> bool {
        let is_same = |slot: &Option<Slot>, payload: &Option<PayloadRef>| match (slot, payload) {
            (Some(slot), Some(payload)) => {
                // Others are stored in another form than they are measured in.
                !slot.form.is_empty() || slot.range.end - slot.range.start == payload.size
            }
            (None, None) => true,
            _ => false,
        };
        (self.head.index, self.head.iteration) == (step.index, step.iteration)
            && (step.request.is_none() || is_same(&self.request, &step.request))
            && (step.ended_at.is_none() || is_same(&self.response, &step.response))
    }
}

/// There is no outline.
#[derive(Debug)]
struct Broken;

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl From<serde_json::Error> for Broken {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

/// A pass over a document.
struct Scan<R> {
    input: BufReader<R>,
    /// Of the next byte.
    position: u64,
    /// For heads.
    room: usize,
}

impl<R: Read> Scan<R> {
    fn document(mut self) -> Result<Outline, Broken> {
        let mut head = Vec::new();
        let mut steps = None;
        self.object(&mut |scan, name| {
            match (name, &steps) {
                ("steps", None) => steps = Some(scan.steps()?),
                ("steps", Some(_)) => return Err(Broken),
                _ => scan.keep_member(name, &mut head)?,
            }
            Ok(())
        })?;
        // To the end, where the checksum is.
        if self.next_byte()?.is_some() {
            return Err(Broken);
        }
        let heading: Heading<'_> = close_object(&mut head)?;
        match steps {
            Some(steps) if heading.v == 1 => Ok(Outline {
                heading: heading.into_owned(),
                steps,
            }),
            _ => Err(Broken),
        }
    }

    fn steps(&mut self) -> Result<Vec<OutlinedStep>, Broken> {
        let mut steps = Vec::new();
        self.expect(b'[')?;
        if self.takes(b']')? {
            return Ok(steps);
        }
        loop {
            steps.push(self.step()?);
            if !self.takes(b',')? {
                self.expect(b']')?;
                return Ok(steps);
            }
        }
    }

    fn step(&mut self) -> Result<OutlinedStep, Broken> {
        let mut head = Vec::new();
        let (mut request, mut response) = (None, None);
        self.object(&mut |scan, name| {
            let Some((kind, form)) = payload_named(name) else {
                return scan.keep_member(name, &mut head);
            };
            let slot = match kind {
                RecordKind::Request => &mut request,
                RecordKind::Response => &mut response,
            };
            match (scan.payload(form)?, &slot) {
                (None, _) => Ok(()),
                (Some(_), Some(_)) => Err(Broken),
                (found, None) => {
                    *slot = found;
                    Ok(())
                }
            }
        })?;
        let head: StepHead<'_> = close_object(&mut head)?;
        Ok(OutlinedStep {
            head: head.into_owned(),
            request,
            response,
        })
    }

    /// The next value as a payload; `None` if it is null.
    fn payload(&mut self, form: &'static str) -> Result<Option<Slot>, Broken> {
        let mut hasher = Fingerprinter::default();
        let range = self.value(&mut |piece| {
            hasher.update(piece);
            Ok(())
        })?;
        let fingerprint = hasher.finish();
        let is_null = fingerprint == Fingerprint::of(b"null");
        Ok((!is_null).then_some(Slot {
            form,
            range,
            fingerprint,
        }))
    }

    /// Hands every member of the next object to `member`, which takes its value.
    fn object(
        &mut self,
        member: &mut dyn FnMut(&mut Self, &str) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        self.expect(b'{')?;
        if self.takes(b'}')? {
            return Ok(());
        }
        loop {
            let mut name = Vec::new();
            self.value(&mut |piece| {
                name.extend_from_slice(piece);
                (name.len() <= MAX_NAME_BYTES).then_some(()).ok_or(Broken)
            })?;
            let name: String = serde_json::from_slice(&name)?;
            self.expect(b':')?;
            member(self, &name)?;
            if !self.takes(b',')? {
                return self.expect(b'}');
            }
        }
    }

    /// Adds the next value to an object that is still open, as the member of this name.
    fn keep_member(&mut self, name: &str, object: &mut Vec<u8>) -> Result<(), Broken> {
        object.push(if object.is_empty() { b'{' } else { b',' });
        serde_json::to_writer(&mut *object, name)?;
        object.push(b':');
        let mut room = self.room;
        self.value(&mut |piece| {
            room = room.checked_sub(piece.len()).ok_or(Broken)?;
            object.extend_from_slice(piece);
            Ok(())
        })?;
        self.room = room;
        Ok(())
    }

    /// Walks over the next value, and hands it on piece by piece; returns where it is.
    fn value(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Broken>,
    ) -> Result<Range<u64>, Broken> {
        if self.next_byte()?.is_none() {
            return Err(Broken);
        }
        let start = self.position;
        let mut walk = Walk::default();
        while !walk.is_over {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                return Err(Broken);
            }
            let length = walk.advance(bytes);
            each(bytes.get(..length).unwrap_or(bytes))?;
            self.consume(length);
            breathe();
        }
        if self.position == start {
            return Err(Broken);
        }
        Ok(start..self.position)
    }

    fn expect(&mut self, expected: u8) -> Result<(), Broken> {
        if self.takes(expected)? {
            Ok(())
        } else {
            Err(Broken)
        }
    }

    /// Whether this byte is next; if so, it is taken.
    fn takes(&mut self, expected: u8) -> Result<bool, Broken> {
        let is_next = self.next_byte()? == Some(expected);
        if is_next {
            self.consume(1);
        }
        Ok(is_next)
    }

    /// The next byte that is not space; `None` at the end.
    fn next_byte(&mut self) -> Result<Option<u8>, Broken> {
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let found = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
            let spaces = found.unwrap_or(bytes.len());
            let byte = bytes.get(spaces).copied();
            self.consume(spaces);
            if byte.is_some() {
                return Ok(byte);
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.position += bytes as u64;
    }
}

/// A walk over a JSON value, to find its end.
#[derive(Debug, Default)]
struct Walk {
    depth: u64,
    in_string: bool,
    /// The next character belongs to an escape.
    is_escaped: bool,
    is_over: bool,
}

impl Walk {
    /// How many of these bytes belong to the value.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.is_over {
                break;
            }
            at += if self.in_string {
                self.advance_in_string(rest)
            } else {
                self.advance_outside(rest)
            };
        }
        at
    }

    fn advance_in_string(&mut self, bytes: &[u8]) -> usize {
        if std::mem::take(&mut self.is_escaped) {
            return 1;
        }
        match memchr2(b'"', b'\\', bytes) {
            None => bytes.len(),
            Some(at) => {
                if bytes.get(at) == Some(&b'\\') {
                    self.is_escaped = true;
                } else {
                    self.in_string = false;
                    self.is_over = self.depth == 0;
                }
                at + 1
            }
        }
    }

    fn advance_outside(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.in_string = true;
                    return at + 1;
                }
                b'{' | b'[' => self.depth += 1,
                // What is around the value ends: a number or a word ended before.
                b'}' | b']' | b',' | b':' if self.depth == 0 => {
                    self.is_over = true;
                    return at;
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.is_over = true;
                        return at + 1;
                    }
                }
                byte if self.depth == 0 && byte.is_ascii_whitespace() => {
                    self.is_over = true;
                    return at;
                }
                _ => {}
            }
        }
        bytes.len()
    }
}

/// Whose payload a member of this name is, and its form.
fn payload_named(name: &str) -> Option<(RecordKind, &'static str)> {
    [RecordKind::Request, RecordKind::Response]
        .into_iter()
        .find_map(|kind| {
            let form = name.strip_prefix(kind.as_str())?;
            let form = FORMS.into_iter().find(|known| *known == form)?;
            Some((kind, form))
        })
}

/// Parses an object that lacks its last brace.
fn close_object<'o, T: serde::Deserialize<'o>>(object: &'o mut Vec<u8>) -> Result<T, Broken> {
    if object.is_empty() {
        object.push(b'{');
    }
    object.push(b'}');
    Ok(serde_json::from_slice(object)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn subject() -> Value {
        json!({
            "type": "composite", "api_version": "", "kind": "", "namespace": "", "name": "",
            "uid": "", "composition": "",
        })
    }

    fn document(steps: &str) -> String {
        let subject = subject();
        format!("{{\"v\":1,\"trace_id\":\"t\",\"subject\":{subject},\"steps\":[{steps}]}}\n")
    }

    fn step(payloads: &str) -> String {
        format!(
            "{{\"index\":3,\"name\":\"n\",\"iteration\":0,\"function\":\"f\",\"span_id\":\"s\",\
             \"timestamp\":\"x\",\"ended_at\":null,\"error\":null,{payloads}}}"
        )
    }

    /// Hands over a byte at a time.
    struct Drip<'b>(&'b [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = out.len().min(1);
            (&mut self.0).take(1).read(&mut out[..length])
        }
    }

    #[test]
    fn payloads_are_found_byte_for_byte_however_the_document_arrives() {
        let payloads = [
            r#"{"a":"}\"]\\","b":[{},[1,2,{"c":null}]]}"#,
            r#" [ "x" , { } ]"#,
            "-1.5e3",
            "true",
            r#""a \" quoted \\""#,
            r#""""#,
        ];
        for payload in payloads {
            let text = document(&step(&format!("\"request\":{payload},\"response\":null")));
            for outline in [
                Outline::read(text.as_bytes()).unwrap(),
                Outline::read(Drip(text.as_bytes())).unwrap(),
            ] {
                assert_eq!(outline.heading.trace_id, "t");
                let [step] = &outline.steps[..] else {
                    panic!("{outline:?}")
                };
                assert_eq!((step.head.index, &step.response), (3, &None));
                let range = step.request.as_ref().unwrap().range.clone();
                let range =
                    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
                assert_eq!(text.get(range), Some(payload.trim_start()));
            }
        }
    }

    #[test]
    fn forms_are_told_apart_and_what_holds_the_same_is_equal() {
        let both = step(r#""request_text":"{}","response_base64":"{}""#);
        let outline = Outline::read(document(&both).as_bytes()).unwrap();
        let (request, response) = (&outline.steps[0].request, &outline.steps[0].response);
        let forms = [request, response].map(|slot| slot.as_ref().unwrap().form);
        assert_eq!(forms, ["_text", "_base64"]);
        assert_ne!(request, response);
        let spaced = document(&format!("{} , {both}", step(r#""request_text": "{}""#)));
        let outline = Outline::read(spaced.as_bytes()).unwrap();
        assert_eq!(outline.steps[0].request, outline.steps[1].request);
    }

    #[test]
    fn what_is_not_a_document_or_is_cut_off_has_no_outline() {
        let whole = document(&step(r#""request":{"a":[1,"b"]},"response":null"#));
        for length in 0..whole.trim_end().len() {
            let cut = Outline::read(&whole.as_bytes()[..length]);
            assert_eq!(cut, None, "{length}");
        }
        let long = "x".repeat(MAX_HEADS_BYTES);
        for odd in [
            "[]",
            "{}",
            "{\"v\":1}",
            &whole.replace("\"v\":1", "\"v\":2"),
            &format!("{whole}x"),
            &whole.replace("\"request\":", "\"request\":1,\"request\":"),
            &whole.replace("\"index\":3,", ""),
            &whole.replace("\"index\":3,", "\"index\":,"),
            &whole.replace("\"name\":\"n\"", &format!("\"name\":\"{long}\"")),
        ] {
            assert_eq!(Outline::read(odd.as_bytes()), None);
        }
    }
}
