//! Whatever the payloads hold.

use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::Value;

use super::*;
use crate::redact::Redactor;

/// Names that mean something here, so that odd values come to stand below them.
const NAMES: [&str; 22] = [
    "a",
    "b.c",
    "meta",
    "tag",
    "ttl",
    "observed",
    "desired",
    "composite",
    "resources",
    "resource",
    "metadata",
    "ownerReferences",
    "spec",
    "status",
    "results",
    "severity",
    "conditions",
    "requirements",
    "extraResources",
    "items",
    "ready",
    "input",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(Value::from("SEVERITY_FATAL")),
    ];
    leaf.prop_recursive(8, 64, 6, |inner| {
        let name = prop_oneof![
            6 => proptest::sample::select(&NAMES[..]).prop_map(str::to_owned),
            1 => ".{0,4}",
        ];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((name, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes a value with its members in another order, and blanks between.
fn rewrite(value: &Value, order: &mut impl FnMut(usize) -> usize, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let by = order(members.len());
            members.rotate_left(by);
            out.push_str("{ ");
            for (place, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if place == 0 { "" } else { " ,\n" });
                out.push_str(&serde_json::to_string(name).unwrap());
                out.push_str(" :\t");
                rewrite(value, order, out);
            }
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for (place, value) in elements.iter().enumerate() {
                out.push_str(if place == 0 { "\n" } else { " , " });
                rewrite(value, order, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// A state of one resource with this body.
fn body(body: &str) -> String {
    format!(r#"{{"resources":{{"a":{{"resource":{body}}}}}}}"#)
}

fn assert_bounded(summary: &Summary) {
    for step in &summary.steps {
        let facts = &step.facts;
        assert!(facts.results.len() <= MAX_ENTRIES);
        assert!(facts.conditions.len() <= MAX_ENTRIES);
        assert!(facts.requirements.len() <= MAX_ENTRIES);
        assert!(facts.ttl_s.is_none_or(f64::is_finite));
        for text in facts.tag.iter().chain(&facts.input_kind) {
            assert!(text.len() <= 2 * MAX_TEXT_BYTES + 1);
        }
        if let Some(desired) = &facts.desired {
            assert!(desired.ready <= desired.total);
            for names in [&desired.added, &desired.changed, &desired.removed] {
                assert!(names.len() <= MAX_NAMES && names.is_sorted());
            }
        }
    }
    assert!(summary.dropped.len() as u64 <= summary.dropped_count);
}

proptest! {
    #[test]
    fn the_order_of_members_and_blanks_change_nothing(
        value in any_json(),
        orders in vec(any::<Index>(), 1..8),
    ) {
        let mut orders = orders.iter().cycle();
        let mut order = |len: usize| if len == 0 { 0 } else { orders.next().unwrap().index(len) };
        let mut rewritten = String::new();
        rewrite(&value, &mut order, &mut rewritten);
        let (plain, rewritten) = (body(&value.to_string()), body(&rewritten));
        let summary = summarise(&[step(
            &format!(r#"{{"observed":{plain},"desired":{plain}}}"#),
            &format!(r#"{{"desired":{rewritten}}}"#),
        )]);
        let desired = summary.steps[0].facts.desired.as_ref().unwrap();
        prop_assert_eq!((desired.total, desired.changed_count), (1, 0));
        let is_managed = value.pointer("/metadata/managedFields").is_some();
        prop_assert!(is_managed || summary.outcome.unchanged == 1);
    }

    #[test]
    fn two_values_that_differ_have_other_digests(one in any_json(), other in any_json()) {
        // Numbers are doubles, and so the same if their doubles are.
        fn as_doubles(value: &Value) -> Value {
            match value {
                Value::Number(number) => Value::from(number.as_f64().unwrap() + 0.0),
                Value::Array(elements) => elements.iter().map(as_doubles).collect(),
                Value::Object(members) => members
                    .iter()
                    .map(|(name, value)| (name.clone(), as_doubles(value)))
                    .collect(),
                scalar => scalar.clone(),
            }
        }
        let given = format!(r#"{{"desired":{}}}"#, body(&one.to_string()));
        let returned = format!(r#"{{"desired":{}}}"#, body(&other.to_string()));
        let summary = summarise(&[step(&given, &returned)]);
        let changed = summary.steps[0].facts.desired.as_ref().unwrap().changed_count;
        prop_assert_eq!(changed == 1, as_doubles(&one) != as_doubles(&other));
    }

    #[test]
    fn any_json_makes_a_bounded_summary(payloads in vec(any_json(), 0..8)) {
        let texts: Vec<_> = payloads.iter().map(Value::to_string).collect();
        let calls: Vec<_> = texts
            .chunks(2)
            .map(|pair| step(&pair[0], pair.last().unwrap()))
            .collect();
        let summary = summarise(&calls);
        assert_bounded(&summary);
        prop_assert_eq!(summarise(&calls), summary);
    }

    #[test]
    fn any_bytes_make_a_summary(payloads in vec(vec(any::<u8>(), 0..64), 1..6)) {
        let redactor = Redactor::new::<&str>(&[], &[]).unwrap();
        let mut summariser = Summariser::new();
        for (place, payload) in payloads.iter().enumerate() {
            let payload = Bytes::copy_from_slice(payload);
            let clean = redactor.redact(&payload).payload;
            summariser.read(place, RecordKind::Request, clean.as_bytes());
            summariser.read(place, RecordKind::Response, &payload);
        }
        let calls = vec![step("{}", "{}"); payloads.len()];
        assert_bounded(&summariser.finish(&reconcile(Subject::default(), &calls)));
    }

    #[test]
    fn a_payload_cut_anywhere_makes_a_summary(end in any::<Index>(), value in any_json()) {
        let given = request(&[("a", 1)], &[("a", 1)]);
        let whole = format!(r#"{{"desired":{},"x":{value}}}"#, body(&value.to_string()));
        let cut = whole.floor_char_boundary(end.index(whole.len()));
        let summary = summarise(&[step(&given, whole.get(..cut).unwrap())]);
        prop_assert_eq!(&summary.steps[0].facts.desired, &None);
        prop_assert_eq!(summary.outcome, Outcome::default());
    }

    #[test]
    fn a_history_from_any_bytes_goes_on(
        bytes in vec(any::<u8>(), 0..80),
        sizes in vec(0..3_u64, 1..12),
    ) {
        let mut header = vec![1, 1, 1, 0];
        header.extend(&bytes);
        for bytes in [&bytes, &header] {
            let mut history = FieldHistory::from_bytes(bytes).unwrap_or_default();
            for size in &sizes {
                let response = response(&[("a", *size)]);
                history.advance(&summarise(&[step("{}", &response)]).fields);
                let again = FieldHistory::from_bytes(&history.to_bytes());
                prop_assert_eq!(again.as_ref(), Some(&history));
            }
        }
    }
}
