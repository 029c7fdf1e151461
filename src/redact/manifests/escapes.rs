//! Finds keys, and values that say what something is, whose letters are written as escapes:
//! `"d\x61ta":`, `kind: "\x53ecret"`, or a word that goes on behind a line break.
//!
//! Nobody who has nothing to hide writes a letter as a number, so what such a text says isn't read.
//! Other escapes are left alone: tools write `"\xe9t\xe9":`, `"\u003c"` and `"\x1b[0m"`.
//!
//! Invariant: takes linear time. What is between two quotes is looked at a few times at most.

use memchr::memchr2;

use crate::pace::breathe_after;

/// Keys whose values decide about what stands beside them.
const TELLING: [&str; 4] = ["key", "kind", "name", "type"];

/// Whether a text has such a key or value, in double quotes that may be escaped themselves.
pub(super) fn hides_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut opening = None;
    let mut has_escape = false;
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        breathe_after(found + 1);
        if bytes.get(at) == Some(&b'"') {
            let is_telling = |opening| is_key(text, at) || is_telling_value(text, opening);
            if has_escape && opening.is_some_and(is_telling) {
                return true;
            }
            opening = Some(at);
            has_escape = false;
            at += 1;
        } else {
            let before = at.checked_sub(1).and_then(|before| bytes.get(before));
            let rest = bytes.get(at..).unwrap_or_default();
            let escapes = rest.iter().take_while(|byte| **byte == b'\\').count();
            at += escapes;
            has_escape |= match bytes.get(at) {
                Some(b'\n' | b'\r') => joins_words(before),
                Some(b'n' | b'r') => escapes > 2 && joins_words(before),
                _ => stands_for_letter(bytes.get(at..).unwrap_or_default()),
            };
        }
    }
    false
}

/// Whether an escaped line break behind this byte is within a word.
fn joins_words(before: Option<&u8>) -> bool {
    before.is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether what follows a backslash stands for something that words are made of.
fn stands_for_letter(escape: &[u8]) -> bool {
    let (digits, long) = match escape {
        // The type of a Secret has a slash.
        [b'/', ..] => return true,
        [b'x', digits @ ..] => (digits, 2),
        [b'u', digits @ ..] => (digits, 4),
        [b'U', digits @ ..] => (digits, 8),
        _ => return false,
    };
    let digits = digits.get(..long).map(std::str::from_utf8);
    let Some(Ok(Ok(character))) = digits
        .map(|digits| digits.map(|digits| u32::from_str_radix(digits, 16).map(char::from_u32)))
    else {
        return false;
    };
    character.is_some_and(|character| {
        character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | '/' | ' ')
    })
}

/// Whether a colon follows the text in quotes that ends here.
fn is_key(text: &str, closing: usize) -> bool {
    let rest = text.get(closing + 1..).unwrap_or_default();
    rest.trim_start_matches(is_noise).starts_with(':')
}

/// Whether the text in quotes that begins here may be the value of a key that says what something
/// is, or stand for one elsewhere.
fn is_telling_value(text: &str, opening: usize) -> bool {
    let before = text.get(..opening).unwrap_or_default();
    let trimmed = before.trim_end_matches(is_noise);
    let gap = before.get(trimmed.len()..).unwrap_or_default();
    // Its key is on another line, behind a comment even.
    if gap.contains('\n') && !trimmed.ends_with([',', '[', '{']) {
        return true;
    }
    if let Some(key) = trimmed.strip_suffix(':') {
        let key = key.trim_end_matches(is_noise);
        let is_part = |character: char| character.is_ascii_alphanumeric();
        let start = key.trim_end_matches(is_part).len();
        return TELLING.contains(&key.get(start..).unwrap_or_default());
    }
    // A tag, an anchor, or a key behind a question mark.
    let is_end = |character: char| character.is_ascii_whitespace() || character == '"';
    let last = trimmed.rsplit(is_end).next().unwrap_or_default();
    !gap.is_empty() && last.starts_with(['!', '&', '?'])
}

/// What may stand between a key or a value and the colon between them.
fn is_noise(character: char) -> bool {
    matches!(character, '\\' | '"' | '\'' | ' ' | '\t' | '\r' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_are_escaped_count_in_keys_and_in_what_says_what_something_is() {
        for text in [
            r#"kind: "\x53ecret""#,
            r#"kind: "\u0053ecret""#,
            r#"kind: "\U00000053ecret""#,
            r#"{kind: "\x53ecret"}"#,
            r#""kind" : "\x53ecret""#,
            r#"kind: !!str "\x53ecret""#,
            r#"x: &k "\x53ecret""#,
            "kind: # c\n  \"\\x53ecret\"",
            "kind: \"Sec\\\n  ret\"",
            "kind: \"Sec\\\r\n  ret\"",
            r#""d\x61ta":"#,
            r#"- "d\x61ta" : x"#,
            r#"{a: b, "d\x61ta": {}}"#,
            r#""api\x5fkey": x"#,
            r#"type: "kubernetes.io\/tls""#,
            "? \"d\\x61ta\" # c\n: x",
            r#"manifest: "kind: \"\\x53ecret\"""#,
            r#"manifest: "kind: \"Sec\\\nret\"""#,
        ] {
            assert!(hides_word(text), "{text}");
        }
    }

    #[test]
    fn other_escapes_and_other_places_are_left_alone() {
        for text in [
            "",
            r#"a: "\x53ecret""#,
            r#"["\x53ecret", "x"]"#,
            "[a,\n \"\\x53ecret\"]",
            r#"cannot parse "\x1f\x00": invalid"#,
            r#""\xe9t\xe9": x"#,
            r#"error in {"a\u003cb": 1}"#,
            r#"kind: "a\tb""#,
            r#"kind: "\xzz""#,
            r#"kind: "\x5"#,
            r"kind: '\x53ecret'",
            "curl \"$URL\" \\\n  -H \"a\": b",
            "printf \"\\x53\" | sh",
        ] {
            assert!(!hides_word(text), "{text}");
        }
    }
}
