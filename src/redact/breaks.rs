//! Line breaks besides `\n` and `\r\n`: a lone `\r`, and those that only YAML 1.1 knows: U+0085, U+2028
//! and U+2029. JSON may have the latter without an escape, so a string without a backslash may have
//! lines all the same.

use std::borrow::Cow;

use memchr::{memchr_iter, memchr2, memchr2_iter};

/// Those of YAML 1.1, with which go-yaml and libyaml end lines to this day.
const OF_YAML: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Whether a string, as JSON has it, may hold YAML or JSON: these have quotes, braces or line breaks.
pub(super) fn may_hold_manifest(written: &str) -> bool {
    memchr2(b'\\', b'{', written.as_bytes()).is_some() || has_break_of_yaml(written)
}

/// The text with other line breaks as `\n`; `None` if it has none.
pub(super) fn with_plain_breaks(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut returns = memchr_iter(b'\r', bytes);
    let has_lone_return = returns.any(|at| bytes.get(at + 1) != Some(&b'\n'));
    if !has_lone_return && !has_break_of_yaml(text) {
        return None;
    }
    let text = if has_lone_return {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    };
    Some(text.replace(OF_YAML, "\n"))
}

fn has_break_of_yaml(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_break = |at| {
        let rest = bytes.get(at..).unwrap_or_default();
        matches!(rest, [0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..])
    };
    // NOTE: by what they begin with in UTF-8; a look at each character takes twenty times as long.
    memchr2_iter(0xc2, 0xe2, bytes).any(is_break)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_of_yaml_are_found_and_replaced() {
        for text in ["a\u{85}b", "é\u{2028}", "\u{2029}", "— a\rb", "\r"] {
            let plain = with_plain_breaks(text).unwrap();
            assert!(plain.contains('\n') && with_plain_breaks(&plain).is_none());
        }
        assert_eq!(
            with_plain_breaks("a\r\nb\rc\u{2028}").as_deref(),
            Some("a\nb\nc\n")
        );
        for text in ["", "a\nb\r\n", "é — “a” â\u{84}\u{2027}\u{202a}"] {
            assert_eq!(with_plain_breaks(text), None, "{text}");
        }
    }
}
