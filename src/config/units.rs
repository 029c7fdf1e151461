//! Durations, byte counts and file modes as people write them. Pure.
//!
//! Invariant: everything that Go's `time.ParseDuration` takes means the same here, except for
//! negative durations, which no setting takes.

use std::time::Duration;

/// A duration in Go's notation (`1h30m`, `1.5s`, `100ms`, `0`), or in days (`7d`).
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write 5s, 1m30s, 100ms, 12h or 7d");
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let is_number = |character: char| character.is_ascii_digit() || character == '.';
        let (number, after) = split_where(rest, |character| !is_number(character));
        let (unit, after) = split_where(after, is_number);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    if unsigned.is_empty() {
        Err(wrong())
    } else {
        Ok(total)
    }
}

/// A number of bytes: `8388608`, `8MiB`, `8Mi`, `8MB`, `8M`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size; write 8388608, 512KiB, 8MiB or 1GiB");
    let (number, unit) = split_where(text.trim(), |character| {
        !character.is_ascii_digit() && character != '.'
    });
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "K" | "kB" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        "Ki" | "KiB" => 1 << 10,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        "Ti" | "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a positive number far below 2^53"
    )]
    match number.parse::<f64>() {
        Ok(fraction) if (0.0..1e6).contains(&fraction) => Ok((fraction * factor as f64) as u64),
        _ => Err(wrong()),
    }
}

/// The mode of the socket: octal, at most 0660.
pub fn parse_socket_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8)
        .map_err(|_| format!("{text:?} is no mode; write 0660 or 0600"))?;
    if mode & !0o660 != 0 {
        return Err(format!(
            "{text} is more than 0660: payloads are the business of the socket's owner and group"
        ));
    }
    Ok(mode)
}

/// `8.0 MiB`
pub fn show_bytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let mut number = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if number < 1024.0 {
            break;
        }
        number /= 1024.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{number:.1} {unit}")
    }
}

fn split_where(text: &str, is_behind: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_behind).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let millis = |text| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("5s"), Ok(5_000));
        assert_eq!(millis("1h15m30.918s"), Ok(4_530_918));
        assert_eq!(millis("1.5h"), Ok(5_400_000));
        assert_eq!(millis(".5s"), Ok(500));
        assert_eq!(millis("+100ms"), Ok(100));
        assert_eq!(millis("2000us"), Ok(2));
        assert_eq!(millis("2000µs"), Ok(2));
        assert_eq!(millis("0"), Ok(0));
        assert_eq!(millis("7d"), Ok(604_800_000));
        for wrong in ["", "5", "s", "-5s", "5 s", "5x", "1..5s", "1e9h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_units() {
        assert_eq!(parse_bytes("8388608"), Ok(8_388_608));
        assert_eq!(parse_bytes("8MiB"), Ok(8_388_608));
        assert_eq!(parse_bytes("8 Mi"), Ok(8_388_608));
        assert_eq!(parse_bytes("8MB"), Ok(8_000_000));
        assert_eq!(parse_bytes("1.5GiB"), Ok(1_610_612_736));
        assert_eq!(parse_bytes("0"), Ok(0));
        for wrong in ["", "MiB", "8XB", "-1", "1e3", "99999999999TiB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn modes_end_at_0660() {
        assert_eq!(parse_socket_mode("0660"), Ok(0o660));
        assert_eq!(parse_socket_mode("600"), Ok(0o600));
        for wrong in ["0666", "0770", "rw", "99"] {
            assert!(parse_socket_mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(show_bytes(999), "999 B");
        assert_eq!(show_bytes(8_388_608), "8.0 MiB");
        assert_eq!(show_bytes(1_610_612_736), "1.5 GiB");
    }
}
