//! Which lines can't be what is asked for, told without parsing them whole.
//!
//! Most of a line are its steps; nearly all that a query looks at stands before them. So a line is
//! cut there, and the rest only searched for the bytes that [`crate::line::Line`] writes.
//!
//! Invariant: a line that is asked for is never kept out. What is wrong with the rest of one that
//! is kept out goes unnoticed.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::{
    VERSION,
    query::{Glimpse, Query},
};

static STEPS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r#","steps":["#));
/// Each has one.
static STEP: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r#""otel_span_id""#));
static DROPPED_NOTHING: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(r#""dropped":[],"dropped_count":0"#));

/// Keeps lines out.
#[derive(Debug)]
pub(super) struct Sieve {
    /// As a step has it.
    function: Option<Finder<'static>>,
    beginning: Beginning,
}

/// What becomes of a line.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and none is kept"
)]
pub(super) enum Strained<'s> {
    /// It may be asked for.
    Passed,
    /// No line of its trace is asked for.
    KeptOut,
    /// It is not asked for; but what it stands for may be.
    KeptOutAlone {
        beginning: Glimpse<'s>,
        steps: usize,
    },
}

impl Sieve {
    /// `None` if all lines are asked for.
    pub(super) fn of(query: &Query) -> Option<Self> {
        let function = query.function.as_ref().and_then(|function| {
            let function = serde_json::to_string(function).ok()?;
            Some(Finder::new(&format!("\"function\":{function}")).into_owned())
        });
        (*query != Query::default()).then(|| Self {
            function,
            beginning: Beginning::default(),
        })
    }

    pub(super) fn strain(&mut self, line: &[u8], query: &Query) -> Strained<'_> {
        let Some((beginning, rest)) = self.beginning.of(line) else {
            return Strained::Passed;
        };
        if !query.asks_for_trace(&beginning) {
            return Strained::KeptOut;
        }
        let may_call = |function: &Finder<'_>| function.find(rest).is_some();
        if query.asks_for_beginning(&beginning)
            && self.function.as_ref().is_none_or(may_call)
            && (!query.dropped || DROPPED_NOTHING.find(rest).is_none())
        {
            return Strained::Passed;
        }
        Strained::KeptOutAlone {
            beginning,
            steps: STEP.find_iter(rest).count(),
        }
    }
}

/// The beginning of a line, made whole.
#[derive(Debug, Default)]
pub(super) struct Beginning(Vec<u8>);

impl Beginning {
    /// What stands before a line's steps, and the rest; `None` if it is not written as here.
    pub(super) fn of<'l>(&mut self, line: &'l [u8]) -> Option<(Glimpse<'_>, &'l [u8])> {
        let (beginning, rest) = line.split_at_checked(STEPS.find(line)?)?;
        self.0.clear();
        self.0.extend_from_slice(beginning);
        self.0.push(b'}');
        let glimpse: Glimpse<'_> = serde_json::from_slice(&self.0).ok()?;
        (glimpse.v == VERSION).then_some((glimpse, rest))
    }
}
