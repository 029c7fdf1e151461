//! Bare words of YAML 1.1, as go-yaml reads them: which text would come back as something other
//! than a string if it were printed without quotes.
//!
//! Invariant: the answer is go-yaml's, odd corners included (octal `010`, `0b-1`, sexagesimal
//! `1:30`, a date that exists but not one that does not), since quotes hang on it.
//!
//! Must not know: how a scalar is laid out, or which characters need quotes for their own sake.

/// Words with a meaning of their own, in the only spellings that count.
const RESERVED: [&str; 38] = [
    "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", "n", "N", "no", "No",
    "NO", "false", "False", "FALSE", "off", "Off", "OFF", "~", "null", "Null", "NULL", ".nan",
    ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF",
];

/// Whether `text`, bare, reads as null, a boolean, a number or a timestamp.
pub(crate) fn reads_as_other_type(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        // Nothing at all reads as null.
        return true;
    };
    RESERVED.contains(&text)
        || match first {
            '.' => is_fraction(text),
            '+' | '-' | '0'..='9' => {
                let digits = text.replace('_', "");
                is_integer(&digits)
                    || is_float(&digits)
                    || is_sexagesimal(text)
                    || is_timestamp(text)
            }
            _ => false,
        }
}

/// A number that starts with its point keeps Go's rule for `_`: only between two digits.
fn is_fraction(text: &str) -> bool {
    let runs = text.split('_');
    let mut gaps = runs.clone().zip(runs.skip(1));
    gaps.all(|(before, after)| before.ends_with(is_digit) && after.starts_with(is_digit))
        && is_float(&text.replace('_', ""))
}

fn is_float(text: &str) -> bool {
    // Rust would also take `inf` and `nan`, which are plain words here. Go refuses what overflows.
    text.chars()
        .all(|c| matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
        && text.parse().is_ok_and(f64::is_finite)
}

/// Go's integer literals, as far as 64 bits hold them.
fn is_integer(text: &str) -> bool {
    // Past its binary prefix, go-yaml accepts a second sign.
    if text
        .strip_prefix("0b")
        .is_some_and(|bits| i64::from_str_radix(bits, 2).is_ok())
    {
        return true;
    }
    let (limit, unsigned) = match text.split_at_checked(1) {
        Some(("+", rest)) => (i64::MAX.unsigned_abs(), rest),
        Some(("-", rest)) => (i64::MIN.unsigned_abs(), rest),
        _ => (u64::MAX, text),
    };
    let (radix, digits) = match unsigned.split_at_checked(2) {
        Some(("0x" | "0X", digits)) => (16, digits),
        Some(("0o" | "0O", digits)) => (8, digits),
        Some(("0b" | "0B", digits)) => (2, digits),
        _ if unsigned.starts_with('0') => (8, unsigned),
        _ => (10, unsigned),
    };
    digits.chars().all(|c| c.is_digit(radix))
        && u64::from_str_radix(digits, radix).is_ok_and(|magnitude| magnitude <= limit)
}

/// Base 60, as in `1:30:00.5`: go-yaml reads it as a string but quotes it for other readers.
fn is_sexagesimal(text: &str) -> bool {
    let is_digit_or_gap = |c: char| is_digit(c) || c == '_';
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut places = whole.strip_prefix(['+', '-']).unwrap_or(whole).split(':');
    let leads = places
        .next()
        .is_some_and(|lead| lead.starts_with(is_digit) && lead.chars().all(is_digit_or_gap));
    let mut sixtieths = places.peekable();
    leads
        && sixtieths.peek().is_some()
        && sixtieths
            .all(|place| matches!(place.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']))
        && fraction.chars().all(is_digit_or_gap)
}

/// A date, alone or with a time of day: after `T` or `t` with a zone, after spaces without one.
fn is_timestamp(text: &str) -> bool {
    let Some(rest) = skip_date(text) else {
        return false;
    };
    if let Some(clock) = rest.strip_prefix(['T', 't']) {
        return skip_clock(clock).is_some_and(is_zone);
    }
    rest.is_empty() || rest.starts_with(' ') && skip_clock(rest.trim_start_matches(' ')) == Some("")
}

/// Skips `2026-1-15`, if there is such a day.
fn skip_date(text: &str) -> Option<&str> {
    let (year, rest) = text.split_once('-')?;
    if year.len() != 4 || !year.chars().all(is_digit) {
        return None;
    }
    let year: u32 = year.parse().ok()?;
    let (month, rest) = split_number(rest)?;
    let (day, rest) = split_number(rest.strip_prefix('-')?)?;
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (1..=days).contains(&day).then_some(rest)
}

/// Skips `15:4:5`, with any fraction of a second behind a point or a comma.
fn skip_clock(text: &str) -> Option<&str> {
    let (hour, rest) = split_number(text)?;
    let (minute, rest) = split_number(rest.strip_prefix(':')?)?;
    let (second, rest) = split_number(rest.strip_prefix(':')?)?;
    let rest = match rest.strip_prefix(['.', ',']) {
        Some(fraction) if fraction.starts_with(is_digit) => fraction.trim_start_matches(is_digit),
        _ => rest,
    };
    (hour < 24 && minute < 60 && second < 60).then_some(rest)
}

/// `Z`, or an offset such as `+02:00`; Go lets it reach 24 hours and 60 minutes.
fn is_zone(text: &str) -> bool {
    let offset = text
        .strip_prefix(['+', '-'])
        .and_then(|offset| offset.split_once(':'));
    let is_within = |number: &str, limit| {
        number.len() == 2 && split_number(number).is_some_and(|n| n.0 <= limit && n.1.is_empty())
    };
    text == "Z" || offset.is_some_and(|(h, m)| is_within(h, 24) && is_within(m, 60))
}

/// Splits a number of one or two digits off the front.
fn split_number(text: &str) -> Option<(u32, &str)> {
    let digits = text
        .chars()
        .take(2)
        .take_while(char::is_ascii_digit)
        .count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

fn is_digit(character: char) -> bool {
    character.is_ascii_digit()
}
