//! Where a batch of index lines stands in the bucket. Pure.
//!
//! ```text
//! v1/index/date=<YYYY-MM-DD>/hour=<HH>/<instance>-<sequence>.jsonl.zst
//! ```
//!
//! Invariant: a key can be read back from its text, and from the name of the file on local disk in
//! which the batch waits; text that is no key is never taken for one. An instance holds letters,
//! digits and dashes only.

use std::fmt;

use crate::time::Timestamp;

const INDEX: &str = "v1/index";
const ENDING: &str = ".jsonl.zst";
const CONTENTS: &str = "v1/contents";
const CONTENTS_ENDING: &str = ".contents.txt";
const HOUR_NANOS: i64 = 3_600_000_000_000;
/// The first whose beginning is a point in time; what began before stands with it.
const FIRST_HOUR: i64 = i64::MIN / HOUR_NANOS;

const INSTANCE_BYTES: usize = 60;
/// Hex digits of the nanosecond in which the process started.
const START_DIGITS: usize = 16;

/// The folder of all batches.
pub(in crate::archive) fn index_folder() -> &'static str {
    INDEX
}

/// The folder of what all batches hold.
pub(in crate::archive) fn contents_folder() -> &'static str {
    CONTENTS
}

/// Names one start of the process among all.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InstanceName(String);

impl InstanceName {
    /// The host, which is the pod's name, and when the process started.
    pub fn new(host: &str, started_at: Timestamp) -> Self {
        let keep = |character: char| {
            if character.is_ascii_alphanumeric() {
                character
            } else {
                '-'
            }
        };
        let host: String = if host.is_empty() { "unnamed" } else { host }
            .chars()
            .map(keep)
            .collect();
        // What tells the pods of one deployment apart stands at the end.
        let excess = host.len().saturating_sub(INSTANCE_BYTES - START_DIGITS - 1);
        let host: String = host.chars().skip(excess).collect();
        Self(format!("{host}-{:016x}", started_at.as_nanos()))
    }

    fn parse(text: &str) -> Option<Self> {
        let is_clean = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (!text.is_empty() && text.len() <= INSTANCE_BYTES && text.bytes().all(is_clean))
            .then(|| Self(text.to_owned()))
    }

    /// Digits that grow from one start to the next.
    fn start(&self) -> &str {
        self.0.rsplit('-').next().unwrap_or_default()
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// An hour since the Unix epoch: lines stand in the folder of the hour in which they began.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Partition(i64);

impl Partition {
    pub fn of(started_at: Timestamp) -> Self {
        Self(started_at.as_nanos().div_euclid(HOUR_NANOS).max(FIRST_HOUR))
    }

    /// From `YYYY-MM-DD` and `HH`.
    pub(super) fn parse(date: &str, hour: &str) -> Option<Self> {
        let start = Timestamp::parse_rfc3339(&format!("{date}T{hour}:00:00Z"))?;
        // NOTE: a leap second or a sign would read as a time, and be written otherwise.
        let partition = Self::of(start);
        (partition.date() == date && partition.hour() == hour).then_some(partition)
    }

    pub(super) fn date(self) -> String {
        self.start().date()
    }

    fn hour(self) -> String {
        self.start().hour()
    }

    /// `v1/index/date=<YYYY-MM-DD>/hour=<HH>`.
    pub(super) fn folder(self) -> String {
        self.folder_in(INDEX)
    }

    fn folder_in(self, folder: &str) -> String {
        format!("{folder}/date={}/hour={}", self.date(), self.hour())
    }

    /// Its first moment.
    pub(super) fn start(self) -> Timestamp {
        Timestamp::from_nanos(self.0.saturating_mul(HOUR_NANOS))
    }
}

/// The place of a batch, relative to the store's prefix.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct IndexKey {
    pub(super) partition: Partition,
    pub(super) instance: InstanceName,
    pub(super) sequence: u32,
}

impl IndexKey {
    /// A key that stands in the bucket.
    pub(super) fn parse(key: &str) -> Option<Self> {
        let rest = key.strip_prefix(INDEX)?.strip_prefix("/date=")?;
        let (date, rest) = rest.split_once("/hour=")?;
        let (hour, name) = rest.split_once('/')?;
        let (instance, sequence) = parse_name(name.strip_suffix(ENDING)?)?;
        Some(Self {
            partition: Partition::parse(date, hour)?,
            instance,
            sequence,
        })
    }

    /// Where it stands what the batch holds.
    pub(super) fn contents_key(&self) -> String {
        let Self {
            partition,
            instance,
            sequence,
        } = self;
        let folder = partition.folder_in(CONTENTS);
        format!("{folder}/{instance}-{sequence:08}{CONTENTS_ENDING}")
    }

    /// The name, without an ending, of the file on local disk.
    pub(super) fn file_stem(&self) -> String {
        let Self {
            partition,
            instance,
            sequence,
        } = self;
        format!(
            "{}T{}-{instance}-{sequence:08}",
            partition.date(),
            partition.hour()
        )
    }

    pub(super) fn of_file_stem(stem: &str) -> Option<Self> {
        let (date, rest) = stem.split_once('T')?;
        let (hour, name) = rest.split_once('-')?;
        let (instance, sequence) = parse_name(name)?;
        Some(Self {
            partition: Partition::parse(date, hour)?,
            instance,
            sequence,
        })
    }

    /// Sorts batches in the order in which they were begun, as far as their names tell.
    pub(super) fn order(&self) -> (&str, &InstanceName, u32) {
        (self.instance.start(), &self.instance, self.sequence)
    }
}

impl fmt::Display for IndexKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partition,
            instance,
            sequence,
        } = self;
        let folder = partition.folder();
        write!(out, "{folder}/{instance}-{sequence:08}{ENDING}")
    }
}

fn parse_name(name: &str) -> Option<(InstanceName, u32)> {
    let (instance, digits) = name.rsplit_once('-')?;
    let sequence: u32 = digits.parse().ok()?;
    let instance = InstanceName::parse(instance)?;
    (format!("{sequence:08}") == digits).then_some((instance, sequence))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_hive_partitioned_by_the_hour_in_utc() {
        let at = Timestamp::from_parts(1_794_803_806, 133_007_001).unwrap();
        let key = IndexKey {
            partition: Partition::of(at),
            instance: InstanceName::new("crossplane-7d9f8b.local", Timestamp::from_nanos(255)),
            sequence: 42,
        };
        let text = "v1/index/date=2026-11-16/hour=04/\
                    crossplane-7d9f8b-local-00000000000000ff-00000042.jsonl.zst";
        assert_eq!(key.to_string(), text);
        assert_eq!(IndexKey::parse(text), Some(key));
    }

    #[test]
    fn text_that_is_no_key_is_not_taken_for_one() {
        for odd in [
            "",
            "v1/index/date=2026-11-16/hour=04/README",
            "v1/index/date=2026-11-16/hour=04/a-00000042.jsonl",
            "v1/index/date=2026-11-16/hour=04/a-42.jsonl.zst",
            "v1/index/date=2026-11-16/hour=04/a-+0000042.jsonl.zst",
            "v1/index/date=2026-11-16/hour=04/-00000042.jsonl.zst",
            "v1/index/date=2026-11-16/hour=04/b/a-00000042.jsonl.zst",
            "v1/index/date=2026-11-16/hour=24/a-00000042.jsonl.zst",
            "v1/index/date=2026-11-16/hour=4/a-00000042.jsonl.zst",
            "v1/index/date=2026-02-30/hour=04/a-00000042.jsonl.zst",
            "v1/indexes/date=2026-11-16/hour=04/a-00000042.jsonl.zst",
        ] {
            assert_eq!(IndexKey::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_end_of_a_long_host_name_is_kept() {
        let start = Timestamp::from_nanos(1);
        let [one, other] = ["a", "b"].map(|end| format!("{}-{end}", "x".repeat(300)));
        assert_ne!(
            InstanceName::new(&one, start),
            InstanceName::new(&other, start)
        );
        assert_ne!(
            InstanceName::new(&one, start),
            InstanceName::new(&one, Timestamp::from_nanos(2))
        );
    }

    #[test]
    fn a_later_start_comes_later_whatever_the_host() {
        let key = |host, start, sequence| IndexKey {
            partition: Partition(0),
            instance: InstanceName::new(host, Timestamp::from_nanos(start)),
            sequence,
        };
        assert!(key("b", 1, 9).order() < key("a", 2, 1).order());
        assert!(key("a", 2, 9).order() < key("a", 2, 10).order());
    }

    proptest! {
        #[test]
        fn keys_are_read_back_from_bucket_and_disk(
            host: String,
            start: i64,
            at in prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX)],
            sequence: u32,
        ) {
            let instance = InstanceName::new(&host, Timestamp::from_nanos(start));
            prop_assert!(instance.0.len() <= INSTANCE_BYTES);
            let partition = Partition::of(Timestamp::from_nanos(at));
            let key = IndexKey { partition, instance, sequence };
            let text = key.to_string();
            let path = object_store::path::Path::from(text.as_str());
            prop_assert_eq!(path.as_ref(), &text);
            prop_assert_eq!(IndexKey::parse(&text), Some(key.clone()));
            prop_assert_eq!(IndexKey::of_file_stem(&key.file_stem()), Some(key));
        }
    }
}
