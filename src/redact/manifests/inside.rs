//! What a part of a text says that isn't read any further: in JSON, in flow style, in quotes.

use crate::redact::{
    REDACTED, Rules,
    frames::{SECRET_TYPES, is_named},
    keys::names_secret,
};

/// Whether a part of a text says that something is a Secret, in JSON or in flow style.
pub(super) fn has_secret(part: &str) -> bool {
    let last = part.rfind("Secret");
    let is_kind = |end: usize| last.is_some_and(|last| end < last);
    ends_of_keys(part, "kind").any(is_kind)
        || ends_of_keys(part, "stringData").next().is_some()
        || (has_secret_type(part)
            && ends_of_keys(part, "type").next().is_some()
            && ends_of_keys(part, "data").next().is_some())
}

/// Whether one of the types of Secrets is in a text.
pub(super) fn has_secret_type(text: &str) -> bool {
    SECRET_TYPES.iter().any(|kind| text.contains(kind))
}

/// Whether `data` or `stringData` is a key anywhere in a text.
pub(super) fn has_data(text: &str) -> bool {
    let mut ends = ends_of_keys(text, "data").chain(ends_of_keys(text, "stringData"));
    ends.next().is_some()
}

/// Where a word ends that is followed by a colon, however often quotes in between are escaped.
pub(super) fn ends_of_keys<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let is_noise = |character: char| matches!(character, '\\' | '"' | '\'' | ' ' | '\t');
    let ends = text.match_indices(word).map(|(at, word)| at + word.len());
    ends.filter(move |end| {
        let rest = text.get(*end..).unwrap_or_default();
        rest.trim_start_matches(is_noise).starts_with(':')
    })
}

/// Whether a part of a text has a key in quotes with a value that would go from JSON.
pub(super) fn has_pair(part: &str, rules: &Rules) -> bool {
    ends_of_pairs(part, rules).next().is_some()
}

/// Where the colons of keys in quotes are whose values would go from JSON.
pub(super) fn ends_of_pairs<'t>(
    text: &'t str,
    rules: &'t Rules,
) -> impl Iterator<Item = usize> + 't {
    let colons = memchr::memchr_iter(b':', text.as_bytes());
    colons.filter(move |colon| {
        let (before, rest) = text.split_at(*colon);
        let value = rest.get(1..).unwrap_or_default().trim_ascii_start();
        let value = value.trim_start_matches('\\');
        let is_string = value.starts_with(['"', '\'']) && !is_empty_or_redacted(value);
        let is_container = value.starts_with(['{', '[']);
        if !is_string && !is_container {
            return false;
        }
        key_before(before).is_some_and(|key| {
            let is_block = matches!(key, "connectionDetails" | "credentials");
            let is_secret = rules.secret_keys && names_secret(key);
            is_block || is_named(key, rules) || (is_string && is_secret)
        })
    })
}

/// The key in quotes that a text ends with.
fn key_before(text: &str) -> Option<&str> {
    let text = text.trim_ascii_end();
    let quote = text.chars().next_back()?;
    if !matches!(quote, '"' | '\'') {
        return None;
    }
    let text = text.get(..text.len() - 1)?.trim_end_matches('\\');
    let opening = memchr::memrchr(u8::try_from(quote).ok()?, text.as_bytes())?;
    text.get(opening + 1..)
}

/// Whether a value in quotes is none, or has been redacted before.
fn is_empty_or_redacted(value: &str) -> bool {
    let content = value.get(1..).unwrap_or_default();
    let content = content.strip_prefix(REDACTED).unwrap_or(content);
    let content = content.trim_start_matches('\\');
    content.starts_with(['"', '\'']) || content.is_empty()
}

/// Whether the user named any key of a text that can't be searched, in quotes or not.
pub(in crate::redact) fn has_named_key(text: &str, rules: &Rules) -> bool {
    let is_noise = |character: char| matches!(character, '\\' | '"' | '\'' | ' ' | '\t');
    let is_part = |character: char| {
        character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | '$')
    };
    !rules.keys.is_empty()
        && memchr::memchr_iter(b':', text.as_bytes()).any(|colon| {
            let before = text.get(..colon).unwrap_or_default();
            let in_quotes = key_before(before).is_some_and(|key| is_named(key, rules));
            let word = before.trim_end_matches(is_noise);
            let long = word.len() - word.trim_end_matches(is_part).len();
            let word = word.get(word.len() - long..).unwrap_or_default();
            // A line break that is written as one is no part of the key behind it.
            let behind_break = word.strip_prefix('n').unwrap_or(word);
            in_quotes || is_named(word, rules) || is_named(behind_break, rules)
        })
}
