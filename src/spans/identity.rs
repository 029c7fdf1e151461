//! Span ids that no two steps of a reconcile share.
//!
//! An id that core gave to one step alone is that step's. Where it gave none, or the same again,
//! the place in the pipeline goes into the id. Invariant: ids are distinct, none is the root's,
//! and the same steps always get the same ids.

use std::collections::HashSet;

use crate::{
    ids::{OtelSpanId, OtelTraceId},
    line::LineStep,
};

/// What a step's id is made from.
#[derive(Clone, Copy, Debug)]
pub struct StepIdentity<'s> {
    /// As core sent it.
    pub span_id: &'s str,
    pub index: i32,
    pub iteration: i32,
}

impl<'s> StepIdentity<'s> {
    pub fn of(step: &'s LineStep) -> Self {
        Self {
            span_id: &step.span_id,
            index: step.index,
            iteration: step.iteration,
        }
    }
}

/// An id for each step, in their order.
pub fn step_span_ids<'s>(
    trace_id: OtelTraceId,
    steps: impl IntoIterator<Item = StepIdentity<'s>>,
) -> Vec<OtelSpanId> {
    let mut taken = HashSet::from([trace_id.root_span()]);
    let distinct = |(place, step)| {
        let id = candidates(step, place).find(|id| taken.insert(*id));
        // NOTE: candidates never end, so there always is one.
        id.unwrap_or_else(|| OtelSpanId::of(step.span_id))
    };
    steps.into_iter().enumerate().map(distinct).collect()
}

fn candidates(step: StepIdentity<'_>, place: usize) -> impl Iterator<Item = OtelSpanId> {
    let StepIdentity {
        span_id,
        index,
        iteration,
    } = step;
    // NOTE: the colon keeps what is made up from being read as hex digits or a UUID.
    let own = (!span_id.is_empty()).then(|| OtelSpanId::of(span_id));
    let by_index = std::iter::once_with(move || format!("{span_id}:{index}:{iteration}"));
    let by_place =
        (0_u64..).map(move |attempt| format!("{span_id}:{index}:{iteration}:{place}:{attempt}"));
    let made_up = by_index.chain(by_place).map(|text| OtelSpanId::of(&text));
    own.into_iter().chain(made_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "784cb8b6-6017-4578-99ba-46a9391f7d1d";
    const SPAN: &str = "0f0a1b2c-3d4e-4f50-8172-93a4b5c6d7e8";

    fn ids(steps: &[(&str, i32, i32)]) -> Vec<OtelSpanId> {
        let steps = steps
            .iter()
            .map(|&(span_id, index, iteration)| StepIdentity {
                span_id,
                index,
                iteration,
            });
        step_span_ids(OtelTraceId::of(TRACE), steps)
    }

    #[test]
    fn an_id_of_its_own_is_kept() {
        assert_eq!(ids(&[(SPAN, 3, 1)]), [OtelSpanId::of(SPAN)]);
    }

    #[test]
    fn a_repeated_id_is_told_apart_by_index_and_iteration() {
        let repeated = ids(&[(SPAN, 0, 0), (SPAN, 0, 1), (SPAN, 1, 0), (SPAN, 1, 0)]);
        let distinct: HashSet<_> = repeated.iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(repeated[0], OtelSpanId::of(SPAN));
        assert_eq!(
            repeated,
            ids(&[(SPAN, 0, 0), (SPAN, 0, 1), (SPAN, 1, 0), (SPAN, 1, 0)])
        );
    }

    #[test]
    fn a_missing_id_depends_on_the_place_in_the_pipeline_alone() {
        let both = ids(&[("", 0, 0), ("", 1, 0)]);
        assert_ne!(both[0], both[1]);
        assert_eq!(ids(&[("", 1, 0)]), [both[1]]);
    }

    #[test]
    fn no_step_takes_the_id_of_the_root() {
        let root = OtelTraceId::of(TRACE).root_span();
        assert_ne!(ids(&[(&root.to_string(), 0, 0)]), [root]);
    }
}
