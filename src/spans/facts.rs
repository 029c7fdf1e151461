//! What an outline tells of a span besides its times: in a few words what became of it.
//!
//! Invariant: as long as the list of facts at most, but for names that a span holds; in the order
//! of that list, so that two outlines differ only where their spans do.

use std::fmt::{self, Write as _};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::Span,
};

/// Attributes and the words for them. A text speaks for itself.
const FACTS: [(&str, &str); 24] = [
    ("crossplane.reconcile.status", ""),
    ("crossplane.step.status", ""),
    ("error.type", ""),
    ("crossplane.reconcile.changed", "changed"),
    ("crossplane.object.state", ""),
    ("crossplane.resources.create.count", "create"),
    ("crossplane.resources.update.count", "update"),
    ("crossplane.resources.delete.count", "delete"),
    ("crossplane.resources.unchanged.count", "keep"),
    ("crossplane.resources.dropped.names", "dropped"),
    ("crossplane.flapping.fields", "flapping"),
    ("crossplane.response.cached", "cached"),
    ("crossplane.desired.total", "desired"),
    ("crossplane.desired.ready", "ready"),
    ("crossplane.desired.added", "added"),
    ("crossplane.desired.changed", "changed"),
    ("crossplane.desired.removed.names", "removed"),
    ("crossplane.requirements", "requires"),
    ("crossplane.requirements.missing", "missing"),
    ("crossplane.conditions", "conditions"),
    ("crossplane.results.fatal", "fatal"),
    ("crossplane.results.warning", "warning"),
    ("crossplane.results.normal", "normal"),
    ("crossplane.clock_skew_ms", "skew"),
];

/// Writes the facts of a span between braces, if there are any.
pub(super) fn fmt_facts(out: &mut fmt::Formatter<'_>, span: &Span) -> fmt::Result {
    let attribute = |key| {
        span.attributes
            .iter()
            .find(|attribute| attribute.key == key)
    };
    let known = FACTS
        .into_iter()
        .filter_map(|(key, word)| fact_of(word, attribute(key)?.value.as_ref()?));
    let links = span
        .links
        .iter()
        .filter_map(|link| fact_of_link(&link.attributes));
    let mut facts: Vec<_> = known.chain(links).collect();
    // A type of error may be what the status says already.
    facts.dedup();
    if facts.is_empty() {
        return Ok(());
    }
    write!(out, " {{{}}}", facts.join(", "))
}

fn fact_of(word: &str, value: &AnyValue) -> Option<String> {
    Some(match value.value.as_ref()? {
        Value::StringValue(text) => text.escape_debug().to_string(),
        Value::BoolValue(is_so) => return is_so.then(|| word.to_owned()),
        Value::IntValue(count) => format!("{word} {count}"),
        Value::DoubleValue(amount) => format!("{word} {amount:?}"),
        Value::ArrayValue(list) => {
            let mut fact = word.to_owned();
            for element in &list.values {
                if let Some(Value::StringValue(text)) = &element.value {
                    // Writing to a text does not fail.
                    write!(fact, " {}", text.escape_debug()).ok()?;
                }
            }
            fact
        }
        _ => return None,
    })
}

/// What a link leads to.
fn fact_of_link(attributes: &[KeyValue]) -> Option<String> {
    let what = fact_of("", attributes.first()?.value.as_ref()?)?;
    Some(format!("-> {what}"))
}
