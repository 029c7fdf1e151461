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
        let ids = [trace_id, otel_trace_id, root_span_id];
        let other_ids = [previous_trace_id, parent_trace_id];
        let field = |field: &FlappingField| text(&field.resource) + text(&field.field);
        size_of::<Self>()
            + ids.map(text).iter().sum::<usize>()
            + other_ids.map(maybe).iter().sum::<usize>()
            + of_subject(subject)
            + steps.iter().map(of_step).sum::<usize>()
            + of_object(object)
            + of_outcome(resources)
            + dropped.iter().map(|it| text(&it.resource)).sum::<usize>()
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
    let texts = [api_version, kind, namespace, name, uid, composition].map(text);
    let facts = [composition_revision, resource_version, parent_uid].map(maybe);
    texts.iter().chain(&facts).sum()
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
    let texts = [name, function, span_id, otel_span_id].map(text);
    let payload = |payload: &PayloadRef| text(&payload.pointer) + text(&payload.sha256);
    let payloads = [request, response].into_iter().flatten().map(payload);
    size_of::<LineStep>()
        + texts.iter().sum::<usize>()
        + maybe(error)
        + maybe(error_type)
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
    let results = results
        .iter()
        .map(|it| maybe(&it.reason) + text(&it.message));
    let conditions = conditions.iter().map(|it| {
        text(&it.condition_type) + text(&it.status) + text(&it.reason) + maybe(&it.message)
    });
    let requirements = requirements.iter();
    let requirements =
        requirements.map(|it| text(&it.name) + text(&it.api_version) + text(&it.kind));
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
        + [tag, input_kind, summary].map(maybe).iter().sum::<usize>()
        + desired.as_ref().map_or(0, lists)
}

fn of_object(object: &ObjectRef) -> usize {
    text(&object.key)
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
    names.iter().map(text).sum()
}

fn text(text: &String) -> usize {
    TEXT_BYTES + text.len()
}

fn maybe(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, self::text)
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
