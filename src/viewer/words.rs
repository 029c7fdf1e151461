//! How times, sizes, verdicts and names read on every page.
//!
//! Invariant: colour is never alone, each verdict has a symbol and a word; and no text from a
//! payload can turn a line around or hide in it.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use maud::{Markup, Render, html};

use crate::{
    answers::{Fate, Mark},
    line::{Line, LineStep, Severity, Status},
    text::{cut, is_showable},
    time::Timestamp,
};

/// Kubernetes takes names of 253 bytes.
const NAME_BYTES: usize = 256;

/// A text without what deceives: whatever does not show as itself is written as an escape.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let is_fine = |character: char| is_showable(character) || matches!(character, '\n' | '\t');
    if text.chars().all(is_fine) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_fine(character) {
            shown.push(character);
        } else {
            // Writing to a text can't fail.
            write!(shown, "\\u{{{:x}}}", u32::from(character)).unwrap_or_default();
        }
    }
    Cow::Owned(shown)
}

/// A name out of a payload, where it can be of any length.
pub(super) fn short_name(name: &str) -> String {
    plain(&cut(name, NAME_BYTES)).into_owned()
}

/// Such as `3 min ago`, with the exact time behind it.
pub(super) fn when(at: Timestamp, now: Timestamp) -> Markup {
    html! {
        time datetime=(at.rfc3339_millis()) title=(clock(at)) { (ago(now.since(at))) }
    }
}

/// Such as `2026-11-16 04:36:46.133 UTC`.
pub(super) fn clock(at: Timestamp) -> String {
    let text = at.rfc3339_millis();
    format!("{} UTC", text.replace('T', " ").trim_end_matches('Z'))
}

fn ago(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds {
        0..=4 => "just now".to_owned(),
        5..=89 => format!("{seconds} s ago"),
        90..=5_399 => format!("{} min ago", (seconds + 30) / 60),
        5_400..=172_799 => format!("{} h ago", (seconds + 1_800) / 3_600),
        _ => format!("{} d ago", (seconds + 43_200) / 86_400),
    }
}

/// Such as `16.4 ms`; a dash for what never ended.
pub(super) fn lasted(millis: Option<f64>) -> String {
    match millis {
        None => "–".to_owned(),
        Some(millis) if millis < 100.0 => format!("{millis:.1} ms"),
        Some(millis) if millis < 1_000.0 => format!("{millis:.0} ms"),
        Some(millis) if millis < 60_000.0 => format!("{:.1} s", millis / 1_000.0),
        Some(millis) => {
            let seconds = Duration::from_secs_f64(millis / 1_000.0).as_secs();
            format!("{} min {} s", seconds / 60, seconds % 60)
        }
    }
}

/// Such as `12.3 KiB`.
pub(super) fn size(bytes: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "three digits are shown, of whatever size"
    )]
    let count = bytes as f64;
    match bytes {
        0..=1_023 => format!("{bytes} B"),
        1_024..=1_048_575 => format!("{:.1} KiB", count / 1_024.0),
        _ => format!("{:.1} MiB", count / 1_048_576.0),
    }
}

/// Such as `9,988`.
pub(super) fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Such as `1 field`, `3 fields`.
pub(super) fn several(number: usize, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {one}{ending}", count(number))
}

/// `Kind.group`, as in the store's folders and in the address of a subject.
pub(super) fn kind_and_group(line: &Line) -> String {
    let subject = &line.subject;
    match subject.api_version.split_once('/') {
        Some((group, _)) => format!("{}.{group}", subject.kind),
        None => subject.kind.clone(),
    }
}

/// `namespace/name`, or the name alone.
pub(super) fn full_name(line: &Line) -> String {
    let subject = &line.subject;
    match subject.namespace.as_str() {
        "" => plain(&subject.name).into_owned(),
        namespace => format!("{}/{}", plain(namespace), plain(&subject.name)),
    }
}

/// A step's name or, in layouts without one, that of its function.
pub(super) fn step_name(step: &LineStep) -> Cow<'_, str> {
    plain(if step.name.is_empty() {
        &step.function
    } else {
        &step.name
    })
}

/// The first digits of a trace id, as many as people need.
pub(super) fn short_id(id: &str) -> String {
    plain(id).chars().take(8).collect()
}

/// A verdict as people see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Badge {
    symbol: &'static str,
    word: &'static str,
    class: &'static str,
}

impl Badge {
    pub(super) const fn of_status(status: Status) -> Self {
        let (symbol, class) = match status {
            Status::Ok => ("✓", "good"),
            Status::Warning => ("!", "warn"),
            Status::Incomplete => ("◌", "bad"),
            Status::Fatal | Status::Error => ("✕", "bad"),
        };
        Self {
            symbol,
            word: status.as_str(),
            class,
        }
    }

    pub(super) const fn of_severity(severity: Severity) -> Self {
        let (symbol, class) = match severity {
            Severity::Normal => ("i", "quiet"),
            Severity::Warning => ("!", "warn"),
            Severity::Fatal => ("✕", "bad"),
        };
        Self {
            symbol,
            word: severity.as_str(),
            class,
        }
    }

    pub(super) const fn of_fate(fate: Fate) -> Self {
        let (symbol, class) = match fate {
            Fate::Create => ("+", "good"),
            Fate::Update => ("~", "warn"),
            Fate::Keep => ("=", "quiet"),
            Fate::Delete => ("−", "bad"),
            Fate::Recreate => ("↻", "warn"),
            Fate::Apply => ("→", "good"),
            Fate::Never => ("∅", "warn"),
            Fate::Unknown => ("?", "quiet"),
        };
        Self {
            symbol,
            word: fate.as_str(),
            class,
        }
    }

    /// Whether this differs from the reconcile before.
    pub(super) const fn of_change(changed: bool) -> Self {
        let (symbol, word, class) = if changed {
            ("Δ", "changed", "info")
        } else {
            ("=", "the same", "quiet")
        };
        Self {
            symbol,
            word,
            class,
        }
    }
}

impl Render for Badge {
    fn render(&self) -> Markup {
        html! {
            span class={ "badge " (self.class) } {
                span class="sign" aria-hidden="true" { (self.symbol) }
                (self.word)
            }
        }
    }
}

/// What stands in a cell of the matrix.
pub(super) const fn sign_of(mark: Mark) -> &'static str {
    match mark {
        Mark::Absent => "",
        Mark::Added => "+",
        Mark::Changed => "~",
        Mark::Untouched => "·",
        Mark::Dropped => "−",
        Mark::Unknown => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deceives_is_written_out() {
        assert_eq!(plain("prod-net é\n"), "prod-net é\n");
        assert_eq!(
            plain("a\u{202e}b\u{1b}[31m\u{200b}"),
            "a\\u{202e}b\\u{1b}[31m\\u{200b}"
        );
    }

    #[test]
    fn times_and_sizes_are_short() {
        let told = [0, 59, 90, 5_400, 172_800, 864_000].map(|s| ago(Duration::from_secs(s)));
        assert_eq!(
            told,
            [
                "just now",
                "59 s ago",
                "2 min ago",
                "2 h ago",
                "2 d ago",
                "10 d ago"
            ]
        );
        let lasted = [0.26, 140.4, 1_500.0, 140_000.0].map(|millis| lasted(Some(millis)));
        assert_eq!(lasted, ["0.3 ms", "140 ms", "1.5 s", "2 min 20 s"]);
        assert_eq!([1, 2_048, 3 << 20].map(size), ["1 B", "2.0 KiB", "3.0 MiB"]);
        assert_eq!(
            [7, 999, 9_988, 1_234_567].map(count),
            ["7", "999", "9,988", "1,234,567"]
        );
        assert_eq!(several(1, "field"), "1 field");
    }
}
