//! Spans as a tree, for people to read.
//!
//! Times are told from the start of the first span on. Invariant: the same spans give the same
//! text; every span stands in it once, even if parents form a ring; no character of theirs moves
//! the cursor.

use std::{
    collections::{HashMap, HashSet},
    fmt::{self, Write as _},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{
        Span,
        span::{Event, Link, SpanKind},
        status::StatusCode,
    },
};

use super::facts::fmt_facts;

/// Deeper spans are not indented further.
const MAX_INDENT: usize = 16;
/// Values within values are told this deep.
const MAX_NESTING: usize = 8;

/// How much of a span is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// A line a span: name, kind, start, duration, what became of it in a few words, status.
    Outline,
    /// Times to the nanosecond, attributes, events and links.
    Full,
}

/// A tree for people: children are indented below their parent.
pub fn render(spans: &[Span], detail: Detail) -> String {
    let mut text = String::new();
    let origin = spans.first().map_or(0, |span| span.start_time_unix_nano);
    for (depth, span) in in_order_of_tree(spans) {
        let shown = ShownSpan {
            span,
            detail,
            origin,
            indent: depth.min(MAX_INDENT) * 2,
        };
        text.push_str(&shown.to_string());
    }
    text
}

/// Each span with its depth: parents before their children, which stay in order.
fn in_order_of_tree(spans: &[Span]) -> Vec<(usize, &Span)> {
    let ids: HashSet<_> = spans.iter().map(|span| &span.span_id).collect();
    let mut children: HashMap<_, Vec<_>> = HashMap::new();
    for (place, span) in spans.iter().enumerate() {
        children
            .entry(&span.parent_span_id)
            .or_default()
            .push(place);
    }
    let is_top = |span: &&Span| !ids.contains(&span.parent_span_id);
    let tops = spans.iter().enumerate().filter(|(_, span)| is_top(span));
    // Of a ring of parents none is on top; the first one is as good as any.
    let starts = tops.chain(spans.iter().enumerate());
    let mut seen = HashSet::new();
    let mut order = Vec::with_capacity(spans.len());
    for (start, _) in starts {
        let mut open = vec![(0, start)];
        while let Some((depth, place)) = open.pop() {
            let Some(span) = spans.get(place).filter(|_| seen.insert(place)) else {
                continue;
            };
            order.push((depth, span));
            let below = children.get(&span.span_id).into_iter().flatten();
            open.extend(below.rev().map(|child| (depth + 1, *child)));
        }
    }
    order
}

struct ShownSpan<'s> {
    span: &'s Span,
    detail: Detail,
    origin: u64,
    indent: usize,
}

impl fmt::Display for ShownSpan<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span, indent, .. } = self;
        let kind = match span.kind() {
            SpanKind::Unspecified => "unspecified",
            SpanKind::Internal => "internal",
            SpanKind::Server => "server",
            SpanKind::Client => "client",
            SpanKind::Producer => "producer",
            SpanKind::Consumer => "consumer",
        };
        let name = span.name.escape_debug();
        let start = self.since_origin(span.start_time_unix_nano);
        let nanos = span
            .end_time_unix_nano
            .saturating_sub(span.start_time_unix_nano);
        let lasts = Duration::from_nanos(nanos);
        write!(out, "{:indent$}{name} [{kind}]", "")?;
        match self.detail {
            Detail::Outline => {
                write!(out, " +{} {}", Rounded(start), Rounded(lasts))?;
                fmt_facts(out, span)?;
            }
            Detail::Full => write!(out, " +{start:?} {lasts:?}")?,
        }
        if let Some(status) = &span.status {
            match status.code() {
                StatusCode::Unset => {}
                StatusCode::Ok => out.write_str(" OK")?,
                StatusCode::Error => write!(out, " ERROR {:?}", status.message)?,
            }
        }
        out.write_char('\n')?;
        match self.detail {
            Detail::Outline => Ok(()),
            Detail::Full => self.fmt_details(out),
        }
    }
}

impl ShownSpan<'_> {
    fn fmt_details(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span, .. } = self;
        let indent = self.indent + 4;
        let (trace, id) = (Hex(&span.trace_id), Hex(&span.span_id));
        writeln!(out, "{:indent$}trace {trace} span {id}", "")?;
        for attribute in &span.attributes {
            writeln!(out, "{:indent$}{}", "", Shown(attribute))?;
        }
        for Link {
            trace_id,
            span_id,
            attributes,
            ..
        } in &span.links
        {
            let (trace, id) = (Hex(trace_id), Hex(span_id));
            write!(out, "{:indent$}-> trace {trace} span {id}", "")?;
            fmt_in_line(out, attributes)?;
        }
        for Event {
            time_unix_nano,
            name,
            attributes,
            ..
        } in &span.events
        {
            let (at, name) = (self.since_origin(*time_unix_nano), name.escape_debug());
            write!(out, "{:indent$}* {name} +{at:?}", "")?;
            fmt_in_line(out, attributes)?;
        }
        let dropped = [
            ("attributes", span.dropped_attributes_count),
            ("events", span.dropped_events_count),
        ];
        for (what, count) in dropped.into_iter().filter(|(_, count)| *count > 0) {
            writeln!(out, "{:indent$}({count} more {what})", "")?;
        }
        Ok(())
    }

    fn since_origin(&self, nanos: u64) -> Duration {
        Duration::from_nanos(nanos.saturating_sub(self.origin))
    }
}

/// A duration to the tenth of its unit.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::ZERO => out.write_char('0'),
            lasts => write!(out, "{lasts:.1?}"),
        }
    }
}

fn fmt_in_line(out: &mut fmt::Formatter<'_>, attributes: &[KeyValue]) -> fmt::Result {
    for attribute in attributes {
        write!(out, " {}", Shown(attribute))?;
    }
    out.write_char('\n')
}

struct Hex<'b>(&'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

struct Shown<'a>(&'a KeyValue);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}=", self.0.key.escape_debug())?;
        fmt_value(out, self.0.value.as_ref(), 0)
    }
}

fn fmt_value(
    out: &mut fmt::Formatter<'_>,
    value: Option<&AnyValue>,
    nesting: usize,
) -> fmt::Result {
    let Some(value) = value.and_then(|value| value.value.as_ref()) else {
        return out.write_str("null");
    };
    match value {
        Value::StringValue(text) => write!(out, "{text:?}"),
        Value::BoolValue(flag) => write!(out, "{flag}"),
        Value::IntValue(number) => write!(out, "{number}"),
        Value::DoubleValue(number) => write!(out, "{number:?}"),
        Value::BytesValue(bytes) => write!(out, "0x{}", Hex(bytes)),
        Value::ArrayValue(_) | Value::KvlistValue(_) if nesting == MAX_NESTING => {
            out.write_char('…')
        }
        Value::ArrayValue(array) => {
            out.write_char('[')?;
            for (place, element) in array.values.iter().enumerate() {
                out.write_str(if place == 0 { "" } else { ", " })?;
                fmt_value(out, Some(element), nesting + 1)?;
            }
            out.write_char(']')
        }
        Value::KvlistValue(list) => {
            out.write_char('{')?;
            for (place, KeyValue { key, value, .. }) in list.values.iter().enumerate() {
                out.write_str(if place == 0 { "" } else { ", " })?;
                write!(out, "{}=", key.escape_debug())?;
                fmt_value(out, value.as_ref(), nesting + 1)?;
            }
            out.write_char('}')
        }
        // Of profiles alone.
        Value::StringValueStrindex(index) => write!(out, "#{index}"),
    }
}
