//! What a part of a text says that isn't read any further: in JSON, in flow style, in quotes.

use super::lines::begins_with_alias_and_colon;
use crate::{
    pace::breathe_after,
    redact::{
        REDACTED, Rules,
        frames::{SECRET_TYPES, is_named},
        keys::names_secret,
    },
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

/// Whether `data` or `stringData` is a key anywhere in a text, or may be one.
pub(super) fn has_data(text: &str) -> bool {
    let mut ends = ends_of_keys(text, "data").chain(ends_of_keys(text, "stringData"));
    ends.next().is_some() || (has_odd_key(text) && (text.contains("data") || text.contains("Data")))
}

/// Whether a text has a key behind a question mark, or an alias for one.
fn has_odd_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr2_iter(b'?', b'*', bytes).any(|at| {
        let is_mark = |next: &u8| next.is_ascii_whitespace();
        begins_with_alias_and_colon(text.get(at..).unwrap_or_default())
            || (bytes.get(at) == Some(&b'?') && bytes.get(at + 1).is_none_or(is_mark))
    })
}

/// Where a word ends that is followed by a colon, however often quotes in between are escaped.
pub(super) fn ends_of_keys<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let is_noise = |character: char| matches!(character, '\\' | '"' | '\'' | ' ' | '\t');
    let ends = text.match_indices(word).map(|(at, word)| at + word.len());
    let mut before = 0;
    ends.filter(move |end| {
        breathe_after(end - before);
        before = *end;
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
    let mut before = 0;
    colons.filter(move |colon| {
        breathe_after(colon - before);
        before = *colon;
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
    // One of several lines would be no key.
    text.get(opening + 1..).filter(|key| !key.contains('\n'))
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
    !rules.keys.is_empty() && has_key(text, |key| is_named(key, rules))
}

/// Whether a text that can't be searched has a key whose value would go from a manifest, in quotes
/// or not.
pub(super) fn has_key_that_goes(text: &str, rules: &Rules) -> bool {
    has_key(text, |key| {
        matches!(key, "connectionDetails" | "credentials")
            || is_named(key, rules)
            || (rules.secret_keys && names_secret(key))
    })
}

fn has_key(text: &str, is_it: impl Fn(&str) -> bool) -> bool {
    let is_noise = |character: char| matches!(character, '\\' | '"' | '\'' | ' ' | '\t');
    let is_part = |character: char| {
        character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | '$')
    };
    let mut last = 0;
    memchr::memchr_iter(b':', text.as_bytes()).any(|colon| {
        breathe_after(colon - last);
        last = colon;
        let before = text.get(..colon).unwrap_or_default();
        let in_quotes = key_before(before).is_some_and(&is_it);
        let word = before.trim_end_matches(is_noise);
        let long = word.len() - word.trim_end_matches(is_part).len();
        let word = word.get(word.len() - long..).unwrap_or_default();
        // A line break that is written as one is no part of the key behind it.
        let behind_break = word.strip_prefix('n').unwrap_or(word);
        in_quotes || is_it(word) || is_it(behind_break)
    })
}
