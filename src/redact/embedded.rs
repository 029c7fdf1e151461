//! Looks into strings: for JSON, for JSON in strings of that JSON, and for YAML.
//!
//! What is found is replaced where it stands, so that every other byte of the string stays as it
//! was written, escapes included. Invariant: a string that can't be searched (too long, too many
//! strings around it, not Unicode, nearly JSON) is withheld if it mentions a secret.

use std::{
    io::{self, BufReader, Read},
    ops::Range,
};

use memchr::memchr;
use serde::de::IgnoredAny;

use super::{
    Rules,
    breaks::may_hold_manifest,
    edits::{Edit, Form},
    manifests::{self, has_named_key},
    scan::find_secret_values,
    tokens::{decode, next_byte, without_quotes},
    words::PRIVATE_KEY,
};
use crate::pace::{breathe, breathe_after};

/// Each string around another one doubles its escapes; people don't nest more than three.
pub const MAX_STRINGS: u8 = 4;
/// Twice what Kubernetes takes in a `ConfigMap`. A longer string is not copied to be searched.
pub const MAX_EMBEDDED_BYTES: usize = 2 * 1024 * 1024;

/// A longer text is validated in slices, which takes five times as long per byte.
const MAX_AT_ONCE: usize = 512 * 1024;
/// Of a longer text: this takes a tenth of a millisecond or so.
const SLICE_BYTES: usize = 32 * 1024;

/// What a string holds.
#[derive(Debug)]
pub(super) enum Inside {
    Nothing,
    /// Something to redact, and no way to tell where it ends.
    Withhold,
    /// Values to redact, in order.
    Edits(Vec<Edit>),
}

/// Looks into the string at `span`, which is known to have a suspicious word in it or not.
pub(super) fn look_inside(
    text: &str,
    span: &Range<usize>,
    has_word: bool,
    rules: &Rules,
    strings_around: u8,
) -> Inside {
    let written = without_quotes(text, span);
    if !has_word && rules.keys.is_empty() {
        return Inside::Nothing;
    }
    if written.contains(PRIVATE_KEY) {
        return Inside::Withhold;
    }
    if !may_hold_manifest(written) {
        return Inside::Nothing;
    }
    let can_search = strings_around < MAX_STRINGS && written.len() <= MAX_EMBEDDED_BYTES;
    let content = can_search.then(|| decode(text, span)).flatten();
    breathe_after(written.len());
    let Some(content) = content else {
        return if has_word || has_named_key(written, rules) {
            Inside::Withhold
        } else {
            Inside::Nothing
        };
    };
    if content.contains(PRIVATE_KEY) {
        return Inside::Withhold;
    }
    // A byte order mark is no part of what follows it.
    let rest = content.strip_prefix('\u{feff}').unwrap_or(&content);
    match find_in(rest, rules, strings_around + 1) {
        Inside::Edits(mut edits) => {
            let mark = content.len() - rest.len();
            for edit in &mut edits {
                edit.start += mark;
                edit.end += mark;
            }
            move_to_written(written.as_bytes(), span.start + 1, &mut edits);
            Inside::Edits(edits)
        }
        other => other,
    }
}

fn find_in(content: &str, rules: &Rules, strings_around: u8) -> Inside {
    let begins_with = |openings: &[&str]| {
        let content = content.trim_ascii_start();
        openings.iter().any(|opening| content.starts_with(opening))
    };
    if begins_with(&["{", "[", "\""]) && is_json(content) {
        return match find_secret_values(content, rules, strings_around) {
            Ok(edits) if edits.is_empty() => Inside::Nothing,
            Ok(edits) => Inside::Edits(edits),
            Err(_) => Inside::Withhold,
        };
    }
    if is_like_json(content)
        && (rules.search.finds_any(content.as_bytes()) || has_named_key(content, rules))
    {
        return Inside::Withhold;
    }
    manifests::find_secret_values(content, rules)
}

/// Whether a text is JSON that was cut off, several texts of JSON, or YAML that looks like it.
fn is_like_json(content: &str) -> bool {
    let content = content.trim_ascii_start();
    let begins_with = |openings: &[&str]| {
        let found = |opening: &&str| content.starts_with(*opening);
        openings.iter().any(found)
    };
    match content.as_bytes() {
        // Templates begin with two.
        [b'{', ..] => !begins_with(&["{{", "{%", "{#"]),
        // Sentences may begin with a bracket or a quote, too.
        [b'[', rest @ ..] => matches!(next_byte(rest, 0), Some(b'{' | b'[')),
        [b'"', ..] => begins_with(&["\"{", "\"[", "\"\\"]),
        _ => false,
    }
}

/// Whether a text is JSON.
pub(super) fn is_json(text: &str) -> bool {
    if text.len() <= MAX_AT_ONCE {
        breathe_after(text.len());
        return serde_json::from_str::<IgnoredAny>(text).is_ok();
    }
    let reader = BufReader::with_capacity(SLICE_BYTES, Slices(text.as_bytes()));
    serde_json::from_reader::<_, IgnoredAny>(reader).is_ok()
}

/// A text that is read slice by slice, with a breath in between.
struct Slices<'t>(&'t [u8]);

impl Read for Slices<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        breathe();
        self.0.read(buffer)
    }
}

/// Moves edits, which are in order, from a string's content to where it is written: `written`
/// begins at `start`.
fn move_to_written(written: &[u8], start: usize, edits: &mut [Edit]) {
    let mut at = 0;
    let mut content_at = 0;
    let mut place_of = |target: usize| {
        while content_at < target && at < written.len() {
            let rest = written.get(at..).unwrap_or_default();
            let plain = rest.get(..target - content_at).unwrap_or(rest);
            let (long, stands_for) = match memchr(b'\\', plain).unwrap_or(plain.len()) {
                0 => width(rest),
                plain => (plain, plain),
            };
            at += long;
            content_at += stands_for;
            breathe_after(long);
        }
        start + at
    };
    for edit in edits {
        edit.start = place_of(edit.start);
        edit.end = place_of(edit.end);
        if let Form::Json { strings_around } = &mut edit.form {
            *strings_around += 1;
        }
    }
}

/// How long the escape that begins here is as it is written, and how many bytes it stands for.
fn width(written: &[u8]) -> (usize, usize) {
    match written {
        [b'\\', b'u', digits @ ..] => match hexadecimal(digits) {
            0..0x80 => (6, 1),
            0x80..0x800 => (6, 2),
            // The first half of a pair.
            0xd800..0xdc00 => (12, 4),
            _ => (6, 3),
        },
        _ => (2, 1),
    }
}

fn hexadecimal(digits: &[u8]) -> u32 {
    digits.iter().take(4).fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16).unwrap_or_default();
        number << 4 | digit
    })
}
