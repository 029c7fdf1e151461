//! Points in time, as nanoseconds since the Unix epoch, and the clock they come from.
//!
//! Invariant: arithmetic saturates; no input, however wild, makes it panic. Only [`SystemClock`]
//! asks the operating system, so that a test can hold the time.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A point in time, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// From seconds and nanoseconds as protobuf sends them; `None` outside the years 1678 to 2262.
    pub fn from_parts(seconds: i64, nanos: i32) -> Option<Self> {
        seconds
            .checked_mul(1_000_000_000)?
            .checked_add(i64::from(nanos))
            .map(Self)
    }

    /// How much later this is than `earlier`; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// From RFC 3339; `None` if it is something else, or outside the years 1678 to 2262.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let parsed = DateTime::parse_from_rfc3339(text).ok()?;
        parsed.timestamp_nanos_opt().map(Self)
    }

    /// `YYYY-MM-DD`, in UTC.
    pub fn date(self) -> String {
        self.utc().format("%Y-%m-%d").to_string()
    }

    /// `HH`, in UTC.
    pub fn hour(self) -> String {
        self.utc().format("%H").to_string()
    }

    /// `HHMMSS.mmm`, in UTC.
    pub fn time_of_day(self) -> String {
        self.utc().format("%H%M%S%.3f").to_string()
    }

    /// RFC 3339 in UTC with nanoseconds.
    pub fn rfc3339(self) -> String {
        self.utc().to_rfc3339_opts(SecondsFormat::Nanos, true)
    }

    /// RFC 3339 in UTC with milliseconds, cut, not rounded.
    pub fn rfc3339_millis(self) -> String {
        self.utc().to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// RFC 3339 in UTC with as many groups of three decimals as are needed, as protojson writes it.
    pub fn rfc3339_shortest(self) -> String {
        self.utc().to_rfc3339_opts(SecondsFormat::AutoSi, true)
    }

    fn utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_nanos(self.0)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(later.as_nanos()).unwrap_or(i64::MAX)),
        )
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, earlier: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(earlier.as_nanos()).unwrap_or(i64::MAX)),
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.rfc3339())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc3339())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse_rfc3339(&text)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no time in RFC 3339")))
    }
}

/// Where the time comes from.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Timestamp;

    /// For measuring how long something takes, whatever the clock on the wall does.
    fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// A clock shared by the stages.
pub type SharedClock = Arc<dyn Clock>;

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everybody else takes"
    )]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// A clock that a test holds.
#[cfg(test)]
pub(crate) mod held {
    use std::sync::Mutex;

    use super::{Clock, Duration, Instant, Timestamp};

    #[derive(Debug)]
    pub(crate) struct HeldClock {
        began: Instant,
        passed: Mutex<Duration>,
    }

    impl Default for HeldClock {
        fn default() -> Self {
            Self {
                began: Instant::now(),
                passed: Mutex::default(),
            }
        }
    }

    impl HeldClock {
        pub(crate) fn advance(&self, time: Duration) {
            *self.passed.lock().unwrap() += time;
        }
    }

    impl Clock for HeldClock {
        fn now(&self) -> Timestamp {
            Timestamp::default() + *self.passed.lock().unwrap()
        }

        fn instant(&self) -> Instant {
            self.began + *self.passed.lock().unwrap()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_the_bucket() {
        let at = Timestamp::from_parts(1_794_803_806, 133_007_001).unwrap();
        assert_eq!(at.date(), "2026-11-16");
        assert_eq!(at.time_of_day(), "043646.133");
        assert_eq!(at.rfc3339(), "2026-11-16T04:36:46.133007001Z");
        assert_eq!(at.rfc3339_millis(), "2026-11-16T04:36:46.133Z");
        assert_eq!(Timestamp::parse_rfc3339(&at.rfc3339()), Some(at));
        assert_eq!(at.hour(), "04");
    }

    #[test]
    fn protojson_drops_trailing_groups_of_zeros() {
        let at = |nanos| Timestamp::from_parts(0, nanos).unwrap().rfc3339_shortest();
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(500_000_000), "1970-01-01T00:00:00.500Z");
        assert_eq!(at(1_000), "1970-01-01T00:00:00.000001Z");
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Timestamp::from_nanos(i64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(Timestamp::from_nanos(3).since(end), Duration::ZERO);
        assert_eq!(Timestamp::from_parts(i64::MAX, 0), None);
    }
}
