//! Lines as nobody would wish them.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::line::{Condition, FlappingField, Requirement};

fn text() -> BoxedStrategy<String> {
    let characters = select(vec![
        "x", "é", "日", "🦀", "\u{0}", "\u{1b}", "\n", "/", "%", "e\u{301}",
    ]);
    let lengths = prop_oneof![0..300_usize, 2000..2100_usize, Just(70_000)];
    prop_oneof![
        3 => any::<String>(),
        2 => Just(String::new()),
        2 => "[a-z]{1,8}",
        1 => Just(TRACE.to_owned()),
        2 => (characters, lengths).prop_map(|(character, length)| character.repeat(length)),
    ]
    .boxed()
}

/// A key or a pointer, of a kind that makes an address as long as can be.
pub(super) fn path() -> BoxedStrategy<String> {
    let plain = (0..2300_usize).prop_map(|length| "p".repeat(length));
    prop_oneof![text(), plain, Just(KEY.to_owned())].boxed()
}

fn names() -> BoxedStrategy<Vec<String>> {
    let many = (
        text().prop_map(|text| text.chars().take(40).collect()),
        0..3000_usize,
    );
    prop_oneof![
        vec(text(), 0..6),
        many.prop_map(|(name, count): (String, _)| vec![name; count]),
    ]
    .boxed()
}

fn timestamp() -> BoxedStrategy<Timestamp> {
    prop_oneof![
        any::<i64>(),
        select(vec![i64::MIN, -1, 0, 1, i64::MAX]),
        (-50..50_i64).prop_map(|millis| at(millis).as_nanos()),
    ]
    .prop_map(Timestamp::from_nanos)
    .boxed()
}

fn status() -> impl Strategy<Value = LineStatus> {
    select(vec![
        LineStatus::Ok,
        LineStatus::Warning,
        LineStatus::Incomplete,
        LineStatus::Fatal,
        LineStatus::Error,
    ])
}

prop_compose! {
    fn payload()(pointer in path(), sha256 in text(), size: u64, redacted: u64) -> PayloadRef {
        PayloadRef { pointer, sha256, size, redacted }
    }
}

prop_compose! {
    fn step_result()(
        severity in select(vec![Severity::Normal, Severity::Warning, Severity::Fatal]),
        reason in option::of(text()),
        message in text(),
    ) -> StepResult {
        StepResult { severity, reason, message }
    }
}

prop_compose! {
    fn condition()(texts in vec(text(), 3)) -> Condition {
        Condition {
            condition_type: texts[0].clone(),
            status: texts[1].clone(),
            reason: texts[2].clone(),
            message: None,
        }
    }
}

prop_compose! {
    fn requirement()(texts in vec(text(), 3), found in option::of(0..2_u64)) -> Requirement {
        Requirement {
            name: texts[0].clone(),
            api_version: texts[1].clone(),
            kind: texts[2].clone(),
            found,
        }
    }
}

prop_compose! {
    fn desired()(names in vec(names(), 3), counts in vec(any::<u64>(), 5)) -> Desired {
        Desired {
            total: counts[0],
            ready: counts[1],
            added: names[0].clone(),
            changed: names[1].clone(),
            removed: names[2].clone(),
            added_count: counts[2],
            changed_count: counts[3],
            removed_count: counts[4],
        }
    }
}

prop_compose! {
    fn facts()(
        results in vec(step_result(), 0..20),
        counts in vec(any::<u64>(), 3),
        conditions in vec(condition(), 0..20),
        texts in vec(option::of(text()), 2),
        ttl_s in option::of(any::<f64>()),
        desired in option::of(desired()),
        requirements in vec(requirement(), 0..20),
    ) -> StepFacts {
        StepFacts {
            results,
            result_counts: SeverityCounts { normal: counts[0], warning: counts[1], fatal: counts[2] },
            conditions,
            tag: texts[0].clone(),
            ttl_s,
            input_kind: texts[1].clone(),
            desired,
            requirements,
            summary: None,
        }
    }
}

prop_compose! {
    fn hostile_step()(
        (index, iteration) in prop_oneof![(0..2, 0..2), any::<(i32, i32)>()],
        texts in vec(text(), 3),
        started_at in timestamp(),
        ended_at in option::weighted(0.8, timestamp()),
        status in status(),
        errors in vec(option::of(text()), 2),
        cached: bool,
        payloads in vec(option::weighted(0.8, payload()), 2),
        facts in facts(),
    ) -> LineStep {
        LineStep {
            index,
            iteration,
            name: texts[0].clone(),
            function: texts[1].clone(),
            span_id: texts[2].clone(),
            otel_span_id: String::new(),
            started_at,
            ended_at,
            duration_ms: None,
            status,
            error: errors[0].clone(),
            error_type: errors[1].clone(),
            cached,
            request: payloads[0].clone(),
            response: payloads[1].clone(),
            facts,
        }
    }
}

prop_compose! {
    fn subject()(
        is_operation: bool,
        texts in vec(text(), 6),
        facts in vec(option::of(text()), 2),
        generation in option::of(any::<i64>()),
    ) -> LineSubject {
        LineSubject {
            kind_of_subject: if is_operation { SubjectType::Operation } else { SubjectType::Composite },
            api_version: texts[0].clone(),
            kind: texts[1].clone(),
            namespace: texts[2].clone(),
            name: texts[3].clone(),
            uid: texts[4].clone(),
            composition: texts[5].clone(),
            facts: SubjectFacts {
                composition_revision: facts[0].clone(),
                generation,
                resource_version: facts[1].clone(),
                parent_uid: None,
            },
        }
    }
}

prop_compose! {
    fn outcome()(names in vec(names(), 3), counts in vec(any::<u64>(), 4)) -> Outcome {
        Outcome {
            create: names[0].clone(),
            update: names[1].clone(),
            delete: names[2].clone(),
            unchanged: counts[0],
            create_count: counts[1],
            update_count: counts[2],
            delete_count: counts[3],
            touched_by: Vec::new(),
        }
    }
}

prop_compose! {
    pub(super) fn hostile_line()(
        ids in (text(), option::of(text()), option::of(text())),
        times in (timestamp(), timestamp()),
        subject in subject(),
        status in status(),
        changed: bool,
        steps in vec(hostile_step(), 0..5),
        key in path(),
        state in select(vec![PayloadState::Stored, PayloadState::Queued, PayloadState::Dropped]),
        resources in outcome(),
        dropped in vec((text(), option::of(0..6_u32), any::<bool>()), 0..40),
        flapping in vec((text(), text()), 0..20),
        counts in any::<(u64, u64)>(),
    ) -> Line {
        let dropped = dropped.into_iter();
        let flapping = flapping.into_iter();
        Line {
            v: 1,
            trace_id: ids.0,
            otel_trace_id: String::new(),
            root_span_id: String::new(),
            previous_trace_id: ids.1,
            parent_trace_id: ids.2,
            started_at: times.0,
            ended_at: times.1,
            duration_ms: f64::NAN,
            subject,
            status,
            changed,
            revision: 0,
            steps,
            object: ObjectRef { key, state, bytes: 0, redaction: None },
            resources,
            dropped: dropped
                .map(|(resource, step, observed)| Dropped { resource, step, observed })
                .collect(),
            dropped_count: counts.0,
            flapping: flapping
                .map(|(resource, field)| FlappingField { resource, field })
                .collect(),
            flapping_count: counts.1,
        }
    }
}
