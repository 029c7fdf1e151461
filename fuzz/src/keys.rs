//! The keys of objects: whatever the names, a key stays in its folder and reads back.
//!
//! A line for each of: API version, kind, namespace, name, trace id, another trace id, when it
//! began, and a key that somebody asks for.

use object_store::path::Path;
use spanplane::{
    archive::{Compression, Key},
    fingerprint::Fingerprint,
    reconcile::{Subject, TraceId},
    time::Timestamp,
};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// See above.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.splitn(8, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let subject = Subject {
        api_version: next().to_owned(),
        kind: next().to_owned(),
        namespace: next().to_owned(),
        name: next().to_owned(),
        ..Subject::default()
    };
    let [trace_id, other_id] = [next(), next()];
    let began = moment(next());
    check_asked(next());
    for line in text.split('\n') {
        check_asked(line);
    }
    for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
        let key_of = |trace_id: &str| {
            Key::of_reconcile(&subject, &TraceId(trace_id.into()), began, compression)
        };
        let key = key_of(trace_id);
        check_key(&key, compression);
        let part = key.of_part(Fingerprint::of(input));
        check_key(&part, compression);
        assert_ne!(key, part);
        if compression == Compression::None {
            assert_eq!(key == key_of(other_id), trace_id == other_id, "{key}");
        }
        // A key has milliseconds: the first of all began before there is time.
        let Some((at, id)) = key.began() else {
            assert_eq!(
                began.as_nanos() / NANOS_PER_MILLI,
                i64::MIN / NANOS_PER_MILLI
            );
            continue;
        };
        assert_eq!(at.rfc3339_millis(), began.rfc3339_millis(), "{key}");
        assert_eq!(part.began(), Some((at, id)));
        assert!(!id.contains("-part"), "{key}");
        if is_plain(trace_id) && trace_id.len() <= 36 && !trace_id.contains("-part") {
            assert_eq!(id, trace_id, "{key}");
        }
    }
}

/// In nanoseconds, or something made of the text.
fn moment(text: &str) -> Timestamp {
    let made_up = text.bytes().fold(0_i64, |sum, byte| {
        sum.wrapping_mul(0x0100_0000_01B3) ^ i64::from(byte)
    });
    Timestamp::from_nanos(text.parse().unwrap_or(made_up))
}

fn is_plain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.bytes().any(|byte| byte != b'.') && text.bytes().all(is_allowed)
}

fn check_key(key: &Key, compression: Compression) {
    let text = key.as_str();
    assert!(text.len() < 255, "{text}");
    assert!(text.ends_with(&format!(".json{}", compression.extension())));
    assert_eq!(text.split('/').count(), 7, "{text}");
    assert_eq!(Key::parse(text).as_ref(), Some(key));
    check_asked(text);
}

fn check_asked(text: &str) {
    let Some(key) = Key::parse(text) else {
        return;
    };
    assert_eq!(key.as_str(), text);
    assert!(text.len() < 255);
    assert!(text.starts_with("v1/reconciles/"), "{text}");
    assert!(text.split('/').all(is_plain), "{text}");
    assert_eq!(Path::from(text).as_ref(), text);
    assert_eq!(Path::parse(text).unwrap().as_ref(), text);
    if let Some((at, id)) = key.began() {
        let name = text.rsplit('/').next().unwrap_or_default();
        assert!(name.contains(id));
        assert!(text.contains(&at.date()), "{text}");
    }
}
