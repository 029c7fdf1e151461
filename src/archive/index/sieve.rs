//! Which lines can't be what is asked for, told without parsing them whole.
//!
//! Most of a line are its steps; nearly all that a query looks at stands before them. So a line is
//! cut there, and the rest only searched for the bytes that [`crate::line::Line`] writes.
//!
//! Invariant: a line that is asked for is never kept out. What is wrong with the rest of one that
//! is kept out goes unnoticed.

use memchr::memmem::Finder;

use super::{
    VERSION,
    query::{Glimpse, Query},
};

/// Keeps lines out.
#[derive(Debug)]
pub(super) struct Sieve {
    steps: Finder<'static>,
    step: Finder<'static>,
    function: Option<Finder<'static>>,
    dropped_nothing: Option<Finder<'static>>,
    /// The beginning of a line, made whole.
    beginning: Vec<u8>,
}

/// What becomes of a line.
#[derive(Debug)]
pub(super) enum Strained<'s> {
    /// It may be asked for.
    Passed,
    /// No line of its trace is asked for.
    KeptOut,
    /// It is not asked for; but what it stands for may be.
    KeptOutAlone { beginning: Glimpse<'s>, steps: u32 },
}

impl Sieve {
    /// `None` if all lines are asked for.
    pub(super) fn of(query: &Query) -> Option<Self> {
        let finder = |text: &str| Finder::new(text).into_owned();
        let function = query.function.as_ref().and_then(|function| {
            let function = serde_json::to_string(function).ok()?;
            Some(finder(&format!("\"function\":{function}")))
        });
        let dropped_nothing = r#""dropped":[],"dropped_count":0"#;
        (*query != Query::default()).then(|| Self {
            steps: finder(r#","steps":["#),
            step: finder(r#""otel_span_id""#),
            function,
            dropped_nothing: query.dropped.then(|| finder(dropped_nothing)),
            beginning: Vec::new(),
        })
    }

    pub(super) fn strain(&mut self, line: &[u8], query: &Query) -> Strained<'_> {
        let is_asked_for = |ids: [&[u8]; 2]| ids.iter().any(|id| query.asks_for_id(id));
        if !ids_of(line).is_none_or(is_asked_for) {
            return Strained::KeptOut;
        }
        let cut = self
            .steps
            .find(line)
            .and_then(|cut| line.split_at_checked(cut));
        let Some((beginning, rest)) = cut else {
            return Strained::Passed;
        };
        self.beginning.clear();
        self.beginning.extend_from_slice(beginning);
        self.beginning.push(b'}');
        let beginning = match serde_json::from_slice::<Glimpse<'_>>(&self.beginning) {
            Ok(beginning) if beginning.v == VERSION => beginning,
            _ => return Strained::Passed,
        };
        if !query.asks_for_trace(&beginning) {
            return Strained::KeptOut;
        }
        let may_call = |function: &Finder<'_>| function.find(rest).is_some();
        let may_drop = |nothing: &Finder<'_>| nothing.find(rest).is_none();
        if query.asks_for_beginning(&beginning)
            && self.function.as_ref().is_none_or(may_call)
            && self.dropped_nothing.as_ref().is_none_or(may_drop)
        {
            return Strained::Passed;
        }
        let steps = self.step.find_iter(rest).count();
        Strained::KeptOutAlone {
            beginning,
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
        }
    }
}

/// Core's id of a trace and OpenTelemetry's, if they stand where they are written, without escapes.
pub(super) fn ids_of(line: &[u8]) -> Option<[&[u8]; 2]> {
    let rest = line.strip_prefix(br#"{"v":1,"trace_id":""#)?;
    let (trace_id, rest) = until_quote(rest)?;
    let rest = rest.strip_prefix(br#","otel_trace_id":""#)?;
    let (otel_trace_id, _) = until_quote(rest)?;
    Some([trace_id, otel_trace_id])
}

fn until_quote(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr2(b'"', b'\\', text)?;
    let (before, rest) = text.split_at_checked(end)?;
    Some((before, rest.strip_prefix(b"\"")?))
}
