//! Where the objects of reconciles stand in the bucket. Pure; the only place that knows their layout.
//!
//! ```text
//! v1/reconciles/<Kind>.<group>/<namespace or _>/<name>/<YYYY-MM-DD>/<HHMMSS.mmm>-<trace id>.json.zst
//! ```
//!
//! Invariant: a key holds letters, digits, `.`, `_`, `-` and `/` only, is under 255 bytes long,
//! has no empty, `.` or `..` segment, and begins with the folder of its kind, whatever stood in
//! the message. A subject's folder depends on the subject alone.

use std::fmt;

use super::object::Compression;
use crate::{
    fingerprint::Fingerprint,
    reconcile::{PayloadHash, Subject, TraceId},
    time::Timestamp,
};

const RECONCILES: &str = "v1/reconciles";

/// Kind, namespace and name together. With the folder, the date, the time, the trace id, the mark
/// of a part and the ending, 102 bytes at most, a key stays under 255.
const SUBJECT_BYTES: usize = 150;
/// A UUID in text.
const TRACE_ID_BYTES: usize = 36;
/// Hex digits of a hash that keep what was cut apart.
const HASH_DIGITS: usize = 12;
/// Stands behind the trace id in the name of a part, and in no trace id.
const PART: &str = "-part-";

/// The place of an object, relative to the store's prefix.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key(String);

impl Key {
    /// Where the object of a reconcile stands.
    pub fn of_reconcile(
        subject: &Subject,
        trace_id: &TraceId,
        started_at: Timestamp,
        compression: Compression,
    ) -> Self {
        let folder = day_folder(subject, started_at);
        let time = started_at.time_of_day();
        let trace_id = trace_segment(trace_id);
        Self(format!(
            "{folder}/{time}-{trace_id}.json{}",
            compression.extension()
        ))
    }

    /// A place beside this one, for a part that can't be joined with what stands there.
    #[must_use]
    pub fn of_part(&self, part: Fingerprint) -> Self {
        let digits: String = part.to_string().chars().take(HASH_DIGITS).collect();
        let ending = self.ending();
        let whole = self.0.strip_suffix(&ending).unwrap_or(&self.0);
        Self(format!("{whole}{PART}{digits}{ending}"))
    }

    /// A key that somebody asks for, if it can be one of a reconcile: nothing outside that folder
    /// can be named.
    pub fn parse(text: &str) -> Option<Self> {
        let segments = text.strip_prefix(RECONCILES)?.strip_prefix('/')?.split('/');
        let is_clean = |segment: &str| !segment.is_empty() && segment == sanitise(segment);
        let is_key =
            text.len() < 255 && segments.clone().count() == 5 && segments.clone().all(is_clean);
        is_key.then(|| Self(text.to_owned()))
    }

    /// A key that stands in the bucket, if it is one of a reconcile.
    pub(super) fn of_stored(key: &str) -> Option<Self> {
        key.starts_with(RECONCILES).then(|| Self(key.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When the reconcile of an object began, and its trace id with odd letters replaced.
    pub fn began(&self) -> Option<(Timestamp, &str)> {
        let (folder, name) = self.0.rsplit_once('/')?;
        let (_, date) = folder.rsplit_once('/')?;
        // The time of day has no dash, and a trace id no mark of a part.
        let (time, rest) = name.split_once('-')?;
        let trace_id = rest.strip_suffix(&self.ending())?;
        let trace_id = trace_id.split_once(PART).map_or(trace_id, |(id, _)| id);
        let (hours, minutes, seconds) = (time.get(..2)?, time.get(2..4)?, time.get(4..)?);
        let began = Timestamp::parse_rfc3339(&format!("{date}T{hours}:{minutes}:{seconds}Z"))?;
        Some((began, trace_id))
    }

    /// Whether this is an object of that trace.
    pub(super) fn is_of_trace(&self, trace_id: &TraceId) -> bool {
        let ending = self.ending();
        let name = self
            .0
            .rsplit('/')
            .next()
            .and_then(|name| name.strip_suffix(&ending));
        // The time of day has no dash.
        let trace = name
            .and_then(|name| name.split_once('-'))
            .map(|(_, trace)| trace);
        trace == Some(trace_segment(trace_id).as_str())
    }

    fn ending(&self) -> String {
        format!(".json{}", Compression::of_key(&self.0).extension())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The folder of everything that `day` holds of a subject.
pub(super) fn day_folder(subject: &Subject, day: Timestamp) -> String {
    format!("{}/{}", subject_folder(subject), day.date())
}

/// The folder of all reconciles.
pub(super) fn reconciles_folder() -> &'static str {
    RECONCILES
}

fn subject_folder(subject: &Subject) -> String {
    let kind = match (subject.kind.as_str(), subject.group()) {
        (kind, "") => sanitise(kind),
        (kind, group) => sanitise(&format!("{kind}.{group}")),
    };
    let mut segments = [kind, sanitise(&subject.namespace), sanitise(&subject.name)];
    while segments.iter().map(String::len).sum::<usize>() > SUBJECT_BYTES {
        let excess = segments.iter().map(String::len).sum::<usize>() - SUBJECT_BYTES;
        let Some(longest) = segments.iter_mut().max_by_key(|segment| segment.len()) else {
            break;
        };
        let length = longest.len().saturating_sub(excess).max(SUBJECT_BYTES / 3);
        *longest = shorten(longest, length);
    }
    format!("{RECONCILES}/{}", segments.join("/"))
}

fn trace_segment(trace_id: &TraceId) -> String {
    // NOTE: without the dash at the end, since a hash may follow.
    let clean = sanitise(&trace_id.0).replace("-part", "_part");
    if clean == *trace_id.0 && clean.len() <= TRACE_ID_BYTES {
        return clean;
    }
    // Two ids that read the same once cleaned must not meet in one object.
    let hashed = format!("{clean}-{}", hash_of(&trace_id.0));
    if hashed.len() <= TRACE_ID_BYTES {
        hashed
    } else {
        shorten_of(&clean, &trace_id.0, TRACE_ID_BYTES)
    }
}

/// Letters, digits, `.`, `_` and `-` stay, anything else becomes `_`.
fn sanitise(segment: &str) -> String {
    let keep = |character: char| {
        if character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-') {
            character
        } else {
            '_'
        }
    };
    let clean: String = segment.chars().map(keep).collect();
    if clean.chars().all(|character| character == '.') {
        "_".to_owned()
    } else {
        clean
    }
}

fn shorten(segment: &str, bytes: usize) -> String {
    shorten_of(segment, segment, bytes)
}

/// The beginning of `segment`, and a hash of `whole` in place of what was cut.
fn shorten_of(segment: &str, whole: &str, bytes: usize) -> String {
    let kept = bytes.saturating_sub(HASH_DIGITS + 1);
    format!(
        "{}-{}",
        segment.chars().take(kept).collect::<String>(),
        hash_of(whole)
    )
}

fn hash_of(text: &str) -> String {
    PayloadHash::of(text.as_bytes())
        .to_string()
        .chars()
        .take(HASH_DIGITS)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subject(api_version: &str, kind: &str, namespace: &str, name: &str) -> Subject {
        Subject {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Subject::default()
        }
    }

    fn key(subject: &Subject, trace_id: &str) -> String {
        let at = Timestamp::from_parts(1_794_803_806, 133_007_001).unwrap();
        let trace_id = TraceId(trace_id.into());
        Key::of_reconcile(subject, &trace_id, at, Compression::Zstd).0
    }

    #[test]
    fn a_person_can_read_them() {
        let trace = "784cb8b6-6017-4578-99ba-46a9391f7d1d";
        assert_eq!(
            key(
                &subject("platform.example.org/v1", "Network", "default", "prod-net"),
                trace
            ),
            "v1/reconciles/Network.platform.example.org/default/prod-net/2026-11-16/\
             043646.133-784cb8b6-6017-4578-99ba-46a9391f7d1d.json.zst"
        );
        assert_eq!(
            key(&subject("v1", "Odd", "", "a:b/../c"), trace),
            "v1/reconciles/Odd/_/a_b_.._c/2026-11-16/\
             043646.133-784cb8b6-6017-4578-99ba-46a9391f7d1d.json.zst"
        );
    }

    #[test]
    fn ids_that_clean_to_the_same_stay_apart() {
        let subject = subject("g/v1", "K", "n", "x");
        assert_ne!(key(&subject, "a/b"), key(&subject, "a_b"));
        assert_ne!(
            key(&subject, &"a".repeat(300)),
            key(&subject, &"a".repeat(301))
        );
    }

    #[test]
    fn a_part_stands_beside_its_whole() {
        let at = Timestamp::default();
        let trace = TraceId("t".into());
        let whole = Key::of_reconcile(&subject("", "K", "", "x"), &trace, at, Compression::Gzip);
        let part = whole.of_part(Fingerprint::of(b"x"));
        assert!(
            part.as_str()
                .starts_with("v1/reconciles/K/_/x/1970-01-01/000000.000-t-part-")
        );
        assert!(part.as_str().ends_with(".json.gz"));
        assert!(whole.is_of_trace(&trace) && !part.is_of_trace(&trace));
        assert!(!whole.is_of_trace(&TraceId("other-t".into())));
        let json = subject("", "K", "", "app.json");
        let whole = Key::of_reconcile(&json, &trace, at, Compression::None);
        let part = whole.of_part(Fingerprint::of(b"x"));
        assert!(
            part.as_str()
                .starts_with("v1/reconciles/K/_/app.json/1970-01-01/"),
            "{part}"
        );
        let other = Key::of_reconcile(&json, &TraceId("a-t".into()), at, Compression::None);
        assert!(!other.is_of_trace(&trace));
    }

    #[test]
    fn nothing_else_can_be_asked_for() {
        let key = "v1/reconciles/Network.x/default/a/2026-11-16/043646.133-t.json.zst";
        assert!(Key::parse(key).is_some());
        for odd in [
            "",
            "v1/index/date=2026-11-16/hour=04/a.jsonl.zst",
            "v1/reconciles/../../a/b/c",
            "v1/reconciles/a/b/c/d",
            "v1/reconciles/a/b/c/d/e/f",
            "v1/reconciles/a//c/d/e",
            "v1/reconciles/a/b/c/d/e%2f",
            "/v1/reconciles/a/b/c/d/e",
            "v1/reconcilesx/a/b/c/d/e",
        ] {
            assert_eq!(Key::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_key_tells_when_and_what() {
        let key = Key("v1/reconciles/K.g/_/n/2026-11-16/043646.133-784c-b8.json.zst".to_owned());
        let (began, trace_id) = key.began().unwrap();
        assert_eq!(began.rfc3339_millis(), "2026-11-16T04:36:46.133Z");
        assert_eq!(trace_id, "784c-b8");
        let part = key.of_part(Fingerprint::of(b"x"));
        assert_eq!(part.began(), key.began());
        let odd = Key("v1/reconciles/a/b/c/d/e".to_owned());
        assert_eq!(odd.began(), None);
    }

    #[test]
    fn an_id_is_taken_neither_for_the_mark_of_a_part_nor_for_an_ending() {
        let at = Timestamp::default();
        let of = |id: &str| {
            let trace_id = TraceId(id.into());
            Key::of_reconcile(&subject("", "K", "", "x"), &trace_id, at, Compression::Zstd)
        };
        for id in [
            "a-part",
            "a-part-0123456789ab",
            "é-part",
            "a.json-b",
            "a.json",
        ] {
            let (key, part) = (of(id), of(id).of_part(Fingerprint::of(b"x")));
            let (_, read) = key.began().unwrap();
            assert!(
                key.as_str().ends_with(&format!("-{read}.json.zst")),
                "{key}"
            );
            assert_eq!(part.began(), key.began(), "{key}");
            let trace_id = TraceId(id.into());
            assert!(key.is_of_trace(&trace_id) && !part.is_of_trace(&trace_id));
        }
        let part = of("a").of_part(Fingerprint::of(b"x"));
        let (_, name) = part.as_str().split_once("000000.000-").unwrap();
        let same_name = TraceId(name.trim_end_matches(".json.zst").into());
        assert!(!part.is_of_trace(&same_name), "{part}");
    }

    proptest! {
        #[test]
        fn no_message_can_leave_its_folder(
            names in prop::collection::vec(any::<String>(), 5),
            nanos: i64,
            long in 0..3000_usize,
        ) {
            let name = names[3].repeat(1 + long / names[3].len().max(1));
            let subject = subject(&names[0], &names[1], &names[2], &name);
            let trace_id = TraceId(names[4].as_str().into());
            let at = Timestamp::from_nanos(nanos);
            let key = Key::of_reconcile(&subject, &trace_id, at, Compression::Zstd);
            for key in [key.of_part(Fingerprint::of(b"")), key] {
                let key = key.as_str();
                prop_assert!(key.len() < 255, "{} bytes: {key}", key.len());
                prop_assert!(key.starts_with("v1/reconciles/"));
                prop_assert_eq!(key.split('/').count(), 7);
                for segment in key.split('/') {
                    prop_assert!(!matches!(segment, "" | "." | ".."), "{key}");
                    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                    prop_assert!(segment.chars().all(allowed), "{key}");
                }
                prop_assert!(Key::parse(key).is_some());
                let path = object_store::path::Path::from(key);
                prop_assert_eq!(path.as_ref(), key);
            }
        }
    }
}
