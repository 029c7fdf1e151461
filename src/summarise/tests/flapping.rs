//! Fields over several reconciles.

use std::fmt::Write as _;

use super::*;
use crate::line::FlappingField;

/// The fields of a final desired state.
fn fields(desired: &str) -> DesiredFields {
    summarise(&[step("{}", &format!(r#"{{"desired":{desired}}}"#))]).fields
}

fn sized(size: u64) -> DesiredFields {
    fields(&state(&[("disk", size)]))
}

/// What flaps at each of these states.
fn flaps(states: &[DesiredFields]) -> Vec<Vec<String>> {
    let mut history = FieldHistory::default();
    let each = states.iter().map(|fields| {
        // As if it had been on disk in between.
        history = FieldHistory::from_bytes(&history.to_bytes()).unwrap();
        let (flapping, count) = history.advance(fields);
        assert_eq!(count, flapping.len() as u64);
        let name = |FlappingField { resource, field }| format!("{resource}:{field}");
        flapping.into_iter().map(name).collect()
    });
    each.collect()
}

fn flap_counts(sizes: &[u64]) -> Vec<usize> {
    let states: Vec<_> = sizes.iter().map(|size| sized(*size)).collect();
    flaps(&states).iter().map(Vec::len).collect()
}

#[test]
fn a_field_that_goes_back_is_flapping() {
    let seen = flaps(&[sized(1), sized(2), sized(1), sized(2)]);
    let flapping = vec!["disk:spec.size".to_owned()];
    assert_eq!(seen, [vec![], vec![], flapping.clone(), flapping]);
}

#[test]
fn a_field_that_goes_on_is_not() {
    assert_eq!(flap_counts(&[1, 2, 3, 4, 4, 5]), [0; 6]);
    assert_eq!(flap_counts(&[1, 1, 1]), [0; 3]);
}

#[test]
fn three_values_before_the_last_are_remembered() {
    assert_eq!(flap_counts(&[1, 2, 3, 4, 1]), [0, 0, 0, 0, 1]);
    assert_eq!(flap_counts(&[1, 2, 3, 4, 5, 1]), [0; 6]);
}

#[test]
fn a_change_is_forgotten_after_eight_reconciles() {
    let mut sizes = vec![1, 2];
    sizes.extend([2; 7]);
    sizes.push(1);
    assert_eq!(flap_counts(&sizes).last(), Some(&1));
    sizes.insert(2, 2);
    assert_eq!(flap_counts(&sizes).last(), Some(&0));
}

#[test]
fn being_absent_is_a_value() {
    let gone = || fields(&state(&[]));
    // The whole resource, told once.
    assert_eq!(flaps(&[sized(1), gone(), sized(1)])[2], ["disk:"]);
    let bare = || fields(r#"{"resources":{"disk":{"resource":{"kind":"Disk"}}}}"#);
    assert_eq!(flaps(&[sized(1), bare(), sized(1)])[2], ["disk:spec.size"]);
    // It was never away before, so coming for the first time is no flapping.
    assert_eq!(
        flaps(&[gone(), sized(1), sized(1)]),
        [(); 3].map(|()| Vec::<String>::new())
    );
}

#[test]
fn paths_are_written_as_crossplane_writes_them() {
    let odd = |value: &str| {
        fields(&format!(
            r#"{{"composite":{{"resource":{{"kind":"{value}","metadata":{{"name":"{value}"}},
            "status":{{"ip":"{value}"}},"spec":{{"n":["{value}"]}}}}}},
            "resources":{{"b":{{"resource":{{"metadata":{{"annotations":
            {{"crossplane.io/x":"{value}"}}}}}}}},"a":{{"resource":{{"l":[0,{{"k":"{value}"}}]}}}}}}}}"#
        ))
    };
    assert_eq!(
        flaps(&[odd("x"), odd("y"), odd("x")])[2],
        [
            ":spec.n[0]",
            ":status.ip",
            "a:l[1].k",
            "b:metadata.annotations[crossplane.io/x]",
        ]
    );
}

#[test]
fn resources_are_in_the_order_of_their_names() {
    let fields = fields(&state(&[("b", 1), ("a", 1)]));
    let resources: Vec<_> = fields.iter().map(|field| field.resource).collect();
    assert_eq!(resources, ["a", "a", "b", "b"]);
}

#[test]
fn many_flapping_fields_are_counted() {
    let many = |value: u64| {
        let names: Vec<_> = (0..100).map(|index| format!("r{index:02}")).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), value)).collect();
        fields(&state(&all))
    };
    let mut history = FieldHistory::default();
    history.advance(&many(1));
    history.advance(&many(2));
    let (flapping, count) = history.advance(&many(1));
    assert_eq!((flapping.len(), count), (32, 100));
    assert_eq!(flapping[31].resource, "r31");
}

#[test]
fn fields_past_the_limit_do_not_seem_to_come_and_go() {
    let long = |has_first: bool| {
        let first = if has_first { "\"aa\":1," } else { "" };
        let mut members = String::new();
        for index in 0..3000 {
            write!(members, "\"k{index:04}\":{index},").unwrap();
        }
        fields(&format!(
            r#"{{"resources":{{"r":{{"resource":{{{first}{members}"z":{has_first}}}}}}}}}"#
        ))
    };
    let seen = flaps(&[long(true), long(false), long(true), long(false), long(true)]);
    assert!(seen.iter().all(Vec::is_empty), "{seen:?}");
    let mut history = FieldHistory::default();
    for has_first in [true, false, true] {
        history.advance(&long(has_first));
        assert!(history.to_bytes().len() < 2048 * 8 + 64);
    }
}

#[test]
fn a_desired_state_that_is_not_known_changes_nothing() {
    let unknown = || fields("3");
    assert_eq!(
        flaps(&[sized(1), unknown(), sized(1), unknown()])[2],
        Vec::<String>::new()
    );
    let mut history = FieldHistory::default();
    history.advance(&unknown());
    assert_eq!(history, FieldHistory::default());
}

#[test]
fn a_history_at_rest_takes_eight_bytes_a_field() {
    let mut history = FieldHistory::default();
    let names: Vec<_> = (0..100).map(|index| index.to_string()).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let all = fields(&state(&all));
    assert_eq!(history.advance(&sized(1)).1, 0);
    for _ in 0..10 {
        history.advance(&all);
    }
    assert_eq!(history.to_bytes().len(), 4 + all.iter().count() * 8);
}

#[test]
fn a_history_that_is_none_is_refused() {
    let mut history = FieldHistory::default();
    for size in [1, 2, 1, 3] {
        history.advance(&sized(size));
    }
    let bytes = history.to_bytes();
    assert_eq!(FieldHistory::from_bytes(&bytes), Some(history));
    for end in 0..bytes.len() {
        // What changed lately stands last: without it the rest is a history of its own.
        let is_whole = end == 4 + 2 * 8;
        assert_eq!(
            FieldHistory::from_bytes(&bytes[..end]).is_some(),
            is_whole,
            "{end}"
        );
    }
    let mut other_version = bytes;
    other_version[0] = 2;
    assert_eq!(FieldHistory::from_bytes(&other_version), None);
    // One field twice.
    let twice = [1, 1, 2, 0, 9, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(FieldHistory::from_bytes(&twice), None);
}

#[test]
fn a_history_of_many_changes_forgets_the_oldest() {
    let many = |value: u64| {
        let names: Vec<_> = (0..1000).map(|index| format!("r{index}")).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), value)).collect();
        fields(&state(&all))
    };
    let mut history = FieldHistory::default();
    history.advance(&fields(&state(&[])));
    // Two fields each come up.
    history.advance(&many(1));
    assert!(history.to_bytes().len() < 2000 * 8 + 1024 * 10 + 64);
    assert_eq!(
        FieldHistory::from_bytes(&history.to_bytes()).as_ref(),
        Some(&history)
    );
    history.advance(&many(2));
    assert_eq!(history.advance(&many(1)).1, 1000);
}
