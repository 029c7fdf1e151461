//! The table of places holds with the redactor alone; `tests/faults` sends the places that are
//! covered through a whole sidecar.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use spanplane::redact::{CleanPayload, REDACTED, Redactor};

use crate::{
    places::{Expected, Flags, Place, places},
    slow::{Node, Rules, Slow, agrees},
};

fn redactor(flags: &Flags) -> Redactor {
    let redactor = Redactor::new(flags.pointers, flags.keys).unwrap();
    redactor.with_secret_keys(flags.secret_keys)
}

/// No canary is a part of another.
fn canary(number: usize) -> String {
    format!("canary-{number:03}-s3cr3t")
}

fn holds(text: &str, canary: &str) -> bool {
    text.contains(canary) || text.contains(&STANDARD.encode(canary))
}

/// A redacted payload as text, and how many values went.
fn redact(place: &Place, payload: &str) -> (String, u64) {
    let redacted = redactor(&place.flags).redact(&Bytes::copy_from_slice(payload.as_bytes()));
    let clean = String::from_utf8(redacted.payload.as_bytes().to_vec()).unwrap();
    (clean, redacted.values)
}

#[test]
fn every_place_is_as_the_table_says() {
    for (number, place) in places().iter().enumerate() {
        let canary = canary(number);
        let payload = place.payload(&canary);
        assert!(holds(&payload, &canary), "no canary: {}", place.name);
        let (clean, values) = redact(place, &payload);
        let stays = holds(&clean, &canary);
        match place.expected {
            Expected::Covered => {
                assert!(!stays, "{} got out: {clean}", place.name);
                assert!(values > 0, "{} was not counted", place.name);
            }
            Expected::Kept => {
                let (count, before) = (
                    clean.matches(&canary).count(),
                    payload.matches(&canary).count(),
                );
                assert_eq!(count, before, "{} was damaged: {clean}", place.name);
            }
            Expected::NotCovered => assert!(stays, "{} is covered: {clean}", place.name),
        }
    }
}

#[test]
fn what_is_not_redacted_stays_byte_for_byte() {
    for (number, place) in places().iter().enumerate() {
        let payload = place.payload(&canary(number));
        let (clean, _) = redact(place, &payload);
        if clean != REDACTED {
            assert_is_redaction_of(&clean, &payload);
        }
    }
}

#[test]
fn what_was_redacted_stays_as_it_is() {
    for (number, place) in places().iter().enumerate() {
        let (clean, _) = redact(place, &place.payload(&canary(number)));
        if clean != REDACTED {
            assert_eq!(redact(place, &clean), (clean.clone(), 0), "{}", place.name);
        }
    }
}

#[test]
fn the_slow_redactor_agrees_on_every_place() {
    for (number, place) in places().iter().enumerate() {
        let payload = place.payload(&canary(number));
        let Flags {
            pointers,
            keys,
            secret_keys,
        } = place.flags;
        let rules = Rules {
            pointers,
            keys,
            secret_keys,
        };
        let redactor = redactor(&place.flags);
        let slow = Slow::new(rules, &redactor);
        let redacted = redactor.redact(&Bytes::from(payload.clone()));
        let (CleanPayload::Json(clean), Some((slow, values))) =
            (redacted.payload, slow.redact(&payload))
        else {
            continue;
        };
        let fast: Node = serde_json::from_slice(&clean).unwrap();
        assert!(agrees(&fast, &slow), "{}: {fast:?}, {slow:?}", place.name);
        assert_eq!(redacted.values, values, "{}", place.name);
    }
}

/// Checks that a text is another one with parts of it redacted.
fn assert_is_redaction_of(clean: &str, payload: &str) {
    // Quotes belong to what was put in, and may be escaped.
    let mut rest = payload;
    let mut parts = clean.split(REDACTED).peekable();
    let mut is_first = true;
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let part = if is_first {
            part
        } else {
            part.trim_start_matches(['\\', '"', '\''])
        };
        let part = if is_last {
            part
        } else {
            part.trim_end_matches(['\\', '"', '\'', ' '])
        };
        let found = match (is_first, is_last) {
            (true, true) => (rest == part).then_some(0),
            (true, false) => rest.starts_with(part).then_some(0),
            (false, true) => rest.ends_with(part).then(|| rest.len() - part.len()),
            (false, false) => rest.find(part),
        };
        let at = found.unwrap_or_else(|| panic!("{part:?} is not in {rest:?}"));
        rest = rest.get(at + part.len()..).unwrap();
        is_first = false;
    }
}
