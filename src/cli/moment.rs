//! Points in time and durations as people write and read them. Pure.

use std::time::Duration;

use spanplane::{config::parse_duration, time::Timestamp};

/// A point in time as people say it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Moment {
    Ago(Duration),
    At(Timestamp),
}

impl Moment {
    /// A duration that has passed since, a time in RFC 3339, or a date in UTC.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_date = text.len() == "YYYY-MM-DD".len();
        let midnight = is_date.then(|| format!("{text}T00:00:00Z"));
        let at = Timestamp::parse_rfc3339(midnight.as_deref().unwrap_or(text));
        let ago = || parse_duration(text).map(Self::Ago);
        at.map(Self::At).map_or_else(ago, Ok).map_err(|_| {
            format!("{text:?} is no time; write 2h, 7d, 2026-11-16 or 2026-11-16T04:36:46Z")
        })
    }

    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(ago) => now - ago,
            Self::At(at) => at,
        }
    }
}

/// `12 ms`, `1.25 s`, `2m20s`
pub(crate) fn show_millis(millis: f64) -> String {
    if millis < 9.95 {
        return format!("{millis:.1} ms");
    }
    if millis < 999.5 {
        return format!("{millis:.0} ms");
    }
    let whole = Duration::try_from_secs_f64(millis / 1000.0).unwrap_or(Duration::MAX);
    if whole < Duration::from_mins(1) {
        return format!("{:.2} s", whole.as_secs_f64());
    }
    show_span(whole)
}

/// `3s`, `2m20s`, `5h`, `12d`: one unit, or two where the first says little.
pub(crate) fn show_span(span: Duration) -> String {
    let seconds = span.as_secs();
    let [minutes, hours, days] = [60, 3600, 86400].map(|unit| seconds / unit);
    match () {
        () if days >= 3 => format!("{days}d"),
        () if hours >= 10 => format!("{hours}h"),
        () if hours >= 1 => format!("{hours}h{}m", minutes % 60),
        () if minutes >= 10 => format!("{minutes}m"),
        () if minutes >= 1 => format!("{minutes}m{}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

/// `3m12s ago`
pub(crate) fn show_ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", show_span(now.since(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_say_how_long_ago_or_when() {
        let now = Timestamp::parse_rfc3339("2026-11-16T12:00:00Z").unwrap();
        let at = |text| Moment::parse(text).map(|moment| moment.at(now).rfc3339_shortest());
        assert_eq!(at("2h"), Ok("2026-11-16T10:00:00Z".to_owned()));
        assert_eq!(at("1d"), Ok("2026-11-15T12:00:00Z".to_owned()));
        assert_eq!(at("2026-11-01"), Ok("2026-11-01T00:00:00Z".to_owned()));
        assert_eq!(
            at("2026-11-16T01:02:03+01:00"),
            Ok("2026-11-16T00:02:03Z".to_owned())
        );
        for wrong in ["", "yesterday", "-2h", "2026-13-01", "2026-11-16T01:02"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_say_what_matters() {
        assert_eq!(show_millis(0.04), "0.0 ms");
        assert_eq!(show_millis(9.96), "10 ms");
        assert_eq!(show_millis(1250.0), "1.25 s");
        assert_eq!(show_millis(140_000.0), "2m20s");
        assert_eq!(show_millis(f64::MAX), show_span(Duration::MAX));
        let span = |seconds| show_span(Duration::from_secs(seconds));
        assert_eq!([span(59), span(61), span(3599)], ["59s", "1m1s", "59m"]);
        assert_eq!(
            [span(3661), span(86400), span(864_000)],
            ["1h1m", "24h", "10d"]
        );
    }
}
