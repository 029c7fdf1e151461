//! A batch of spans in two, or in one span and the others.
//!
//! Invariant: the parts together hold every span of the whole, in order, each with the resource and
//! scope it came with, and no envelope is empty.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{ResourceSpans, ScopeSpans},
};

use crate::spans::{EncodedSpans, spans_in};

/// `None` for a span alone, and for what can't be read.
pub(super) fn halves(spans: &EncodedSpans) -> Option<[EncodedSpans; 2]> {
    if spans.count < 2 {
        return None;
    }
    let (first, second) = halve(spans.decode().ok()?);
    Some([&first, &second].map(EncodedSpans::of))
}

/// A span by its number, and those before and after it, if there are any. `None` for a span alone,
/// for a number that none has, and for what can't be read.
pub(super) fn single_out(
    spans: &EncodedSpans,
    number: usize,
) -> Option<(EncodedSpans, Vec<EncodedSpans>)> {
    if spans.count < 2 {
        return None;
    }
    let (before, rest) = split_at(spans.decode().ok()?, number);
    let (single, after) = split_at(rest, 1);
    let single = EncodedSpans::of(&single);
    if single.count == 0 {
        return None;
    }
    let others = [&before, &after].map(EncodedSpans::of).into_iter();
    let others = others.filter(|others| others.count > 0).collect();
    Some((single, others))
}

/// The first half is the smaller one, if there is one.
fn halve(
    request: ExportTraceServiceRequest,
) -> (ExportTraceServiceRequest, ExportTraceServiceRequest) {
    let half = spans_in(&request).count() / 2;
    split_at(request, half)
}

/// So many spans, and the others.
fn split_at(
    request: ExportTraceServiceRequest,
    mut left: usize,
) -> (ExportTraceServiceRequest, ExportTraceServiceRequest) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for resource in request.resource_spans {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for mut scope in resource.scope_spans {
            let rest = scope.spans.split_off(left.min(scope.spans.len()));
            left -= scope.spans.len();
            let others = ScopeSpans {
                spans: rest,
                scope: scope.scope.clone(),
                schema_url: scope.schema_url.clone(),
            };
            before.extend(Some(scope).filter(|scope| !scope.spans.is_empty()));
            after.extend(Some(others).filter(|scope| !scope.spans.is_empty()));
        }
        let envelope = |scope_spans: Vec<ScopeSpans>| {
            (!scope_spans.is_empty()).then(|| ResourceSpans {
                scope_spans,
                resource: resource.resource.clone(),
                schema_url: resource.schema_url.clone(),
            })
        };
        first.extend(envelope(before));
        second.extend(envelope(after));
    }
    let whole = |resource_spans| ExportTraceServiceRequest { resource_spans };
    (whole(first), whole(second))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::{common::v1::InstrumentationScope, trace::v1::Span};

    use super::*;

    /// One resource for each inner list, one scope for each number: that many spans.
    fn batch(shape: &[&[usize]]) -> ExportTraceServiceRequest {
        let mut names = 0..;
        let mut scope = |at: usize, count: usize| ScopeSpans {
            scope: Some(InstrumentationScope {
                name: format!("scope {at}"),
                ..InstrumentationScope::default()
            }),
            spans: names
                .by_ref()
                .take(count)
                .map(|name: u32| Span {
                    name: name.to_string(),
                    ..Span::default()
                })
                .collect(),
            schema_url: "scope schema".into(),
        };
        let resource_spans = shape
            .iter()
            .enumerate()
            .map(|(at, counts)| ResourceSpans {
                scope_spans: counts.iter().map(|count| scope(at, *count)).collect(),
                schema_url: format!("resource {at}"),
                ..ResourceSpans::default()
            })
            .collect();
        ExportTraceServiceRequest { resource_spans }
    }

    /// Every span with what it stands in.
    fn listed(request: &ExportTraceServiceRequest) -> Vec<String> {
        let mut list = Vec::new();
        for resource in &request.resource_spans {
            assert!(!resource.scope_spans.is_empty());
            for scope in &resource.scope_spans {
                assert!(!scope.spans.is_empty());
                let name = &scope.scope.as_ref().unwrap().name;
                for span in &scope.spans {
                    let schemas = (&resource.schema_url, &scope.schema_url);
                    list.push(format!("{schemas:?} {name} {}", span.name));
                }
            }
        }
        list
    }

    #[test]
    fn a_span_is_singled_out_and_nothing_is_left_behind() {
        let whole = EncodedSpans::of(&batch(&[&[2, 1], &[2]]));
        for number in 0..5 {
            let (single, others) = single_out(&whole, number).unwrap();
            let names = |spans: &EncodedSpans| {
                let request = spans.decode().unwrap();
                let names: Vec<_> = spans_in(&request).map(|span| span.name.clone()).collect();
                assert_eq!(names.len() as u64, spans.count);
                names
            };
            assert_eq!(names(&single), [number.to_string()]);
            assert!(others.iter().all(|others| others.count > 0));
            let mut all: Vec<_> = others.iter().flat_map(names).collect();
            all.insert(number, number.to_string());
            assert_eq!(all, ["0", "1", "2", "3", "4"]);
        }
        assert!(single_out(&EncodedSpans::of(&batch(&[&[1]])), 0).is_none());
    }

    #[test]
    fn halves_hold_the_whole_in_its_envelopes() {
        for shape in [
            &[&[2][..]][..],
            &[&[5]],
            &[&[1], &[1]],
            &[&[3, 1], &[2, 4]],
            &[&[1, 1, 1, 1, 1, 1, 7]],
        ] {
            let whole = batch(shape);
            let (first, second) = halve(whole.clone());
            let counts = (spans_in(&first).count(), spans_in(&second).count());
            assert!(
                counts.0 == counts.1 || counts.0 + 1 == counts.1,
                "{shape:?}"
            );
            assert_eq!([listed(&first), listed(&second)].concat(), listed(&whole));
        }
    }
}
