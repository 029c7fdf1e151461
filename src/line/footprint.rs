//! What a line takes in memory.
//!
//! Invariant: every text and every list is counted, so that where lines are held their bytes can be
//! bounded: a line of an earlier version may have megabytes.

use super::{
    Desired, FlappingField, Line, LineStep, LineSubject, ObjectRef, Outcome, PayloadRef, StepFacts,
    SubjectFacts,
};

/// What the allocator keeps for a text besides its bytes.
const TEXT_BYTES: usize = size_of::<String>() + 16;

impl Line {
    /// Bytes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        let Self {
            trace_id,
            otel_trace_id,
            root_span_id,
            previous_trace_id,
            parent_trace_id,
            subject,
            steps,
            object,
            resources,
            dropped,
            flapping,
            ..
        } = self;
        let field = |field: &FlappingField| texts([&field.resource, &field.field]);
        size_of::<Self>()
            + texts([trace_id, otel_trace_id, root_span_id])
            + maybe([previous_trace_id, parent_trace_id])
            + of_subject(subject)
            + steps.iter().map(of_step).sum::<usize>()
            + of_object(object)
            + of_outcome(resources)
            + dropped
                .iter()
                .map(|it| texts([&it.resource]))
                .sum::<usize>()
            + flapping.iter().map(field).sum::<usize>()
    }
}

fn of_subject(subject: &LineSubject) -> usize {
    let LineSubject {
        kind_of_subject: _,
        api_version,
        kind,
        namespace,
        name,
        uid,
        composition,
        facts,
    } = subject;
    let SubjectFacts {
        composition_revision,
        generation: _,
        resource_version,
        parent_uid,
    } = facts;
    texts([api_version, kind, namespace, name, uid, composition])
        + maybe([composition_revision, resource_version, parent_uid])
}

fn of_step(step: &LineStep) -> usize {
    let LineStep {
        name,
        function,
        span_id,
        otel_span_id,
        error,
        error_type,
        request,
        response,
        facts,
        ..
    } = step;
    let payload = |payload: &PayloadRef| texts([&payload.pointer, &payload.sha256]);
    let payloads = [request, response].into_iter().flatten().map(payload);
    size_of::<LineStep>()
        + texts([name, function, span_id, otel_span_id])
        + maybe([error, error_type])
        + payloads.sum::<usize>()
        + of_facts(facts)
}

fn of_facts(facts: &StepFacts) -> usize {
    let StepFacts {
        results,
        conditions,
        tag,
        input_kind,
        desired,
        requirements,
        summary,
        ..
    } = facts;
    let results = results.iter();
    let results = results.map(|it| maybe([&it.reason]) + texts([&it.message]));
    let conditions = conditions
        .iter()
        .map(|it| texts([&it.condition_type, &it.status, &it.reason]) + maybe([&it.message]));
    let requirements = requirements.iter();
    let requirements = requirements.map(|it| texts([&it.name, &it.api_version, &it.kind]));
    let lists = |desired: &Desired| {
        let Desired {
            added,
            changed,
            removed,
            ..
        } = desired;
        names(added) + names(changed) + names(removed)
    };
    results.sum::<usize>()
        + conditions.sum::<usize>()
        + requirements.sum::<usize>()
        + maybe([tag, input_kind, summary])
        + desired.as_ref().map_or(0, lists)
}

fn of_object(object: &ObjectRef) -> usize {
    texts([&object.key])
}

fn of_outcome(outcome: &Outcome) -> usize {
    let Outcome {
        create,
        update,
        delete,
        touched_by,
        ..
    } = outcome;
    let touched = touched_by.iter().map(|(_, list)| names(list));
    names(create) + names(update) + names(delete) + touched.sum::<usize>()
}

fn names(names: &[String]) -> usize {
    names.iter().map(|name| texts([name])).sum()
}

fn texts<const N: usize>(texts: [&str; N]) -> usize {
    let bytes = texts.iter().map(|text| TEXT_BYTES + text.len());
    bytes.sum()
}

fn maybe<const N: usize>(maybe: [&Option<String>; N]) -> usize {
    maybe.into_iter().flatten().map(|text| texts([text])).sum()
}

#[cfg(test)]
mod tests {
    use crate::line::{Line, samples};

    #[test]
    fn every_text_of_a_line_counts() {
        let line = samples::line("t", samples::at(0));
        let before = line.memory_bytes();
        let longer: [fn(&mut Line, String); 6] = [
            |line, text| line.trace_id = text,
            |line, text| line.resources.touched_by = vec![(0, vec![text])],
            |line, text| line.steps[0].error = Some(text),
            |line, text| line.steps[0].facts.tag = Some(text),
            |line, text| line.object.key = text,
            |line, text| line.subject.facts.parent_uid = Some(text),
        ];
        for change in longer {
            let mut line = line.clone();
            change(&mut line, "x".repeat(1 << 20));
            assert!(line.memory_bytes() > before + (1 << 20) - 1024);
        }
        let long = samples::padded(line, 1 << 20);
        assert!(long.memory_bytes() > 1 << 20);
        assert!(long.memory_bytes() < 4 << 20);
    }
}
