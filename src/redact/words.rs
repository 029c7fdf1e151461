//! Finds the words without which a payload has nothing to redact.
//!
//! Most payloads have none of them, or only in references; these are not scanned at all, so this
//! has to be fast: where it can, it looks for one rare letter of several words at a time.
//!
//! Invariant: whatever [`super::scan`] would redact because of a string, or because of an object
//! that a string is in, has one of these words in that string.

use std::cell::LazyCell;

use memchr::{memchr2_iter, memchr3_iter, memmem, memrchr};
use regex::bytes::Regex;

use super::{
    breaks::may_hold_manifest,
    keys::{is_separator, names_secret},
    tokens::{end_of_string, next_byte},
};
use crate::pace::breathe_after;

/// What a PEM block of a private key begins and ends with.
pub(super) const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// How words without a rare letter begin, or go on. The last one means nothing in another case.
///
/// NOTE: the whole words would be too many in all cases to be searched for at once.
const BEGINNINGS: &str = "(?-u)(?i:sec|nne)|cred";
/// What is before them, and how they go on.
const COMMON_WORDS: [(&[u8], &[u8]); 3] = [
    (b"", b"secret"),
    (b"", b"credentials"),
    (b"co", b"nnection"),
];

/// How escapes begin that may stand for a part of any word: by a number in JSON and in YAML, or, in
/// YAML, by a line break that doesn't count. In a string of JSON that one has more backslashes, unless
/// it is one that only YAML 1.1 knows.
const ESCAPES: &str = r"(?-u)\\[Uux]|\\\\\\[nr]|\\[\n\r]|\\(?:\xC2\x85|\xE2\x80[\xA8\xA9])";

/// What the types of Secrets that Kubernetes defines begin with.
const DOMAIN: &[u8] = b"kubernetes.io";

/// What is searched at once takes a tenth of a millisecond or so.
const SLICE_BYTES: usize = 128 * 1024;
/// No match of [`BEGINNINGS`] or [`ESCAPES`] is longer.
const LONGEST_FOUND: usize = 4;

/// How many searches there are.
const SEARCHES: usize = 6;

/// Finds words.
#[derive(Clone, Debug)]
pub(super) struct Search {
    beginnings: Regex,
    escapes: Regex,
}

/// The words of a text, to be asked for from its beginning to its end.
#[derive(Debug)]
pub(super) struct Words<'t, 's> {
    search: &'s Search,
    text: &'t [u8],
    /// Where each search found its next word.
    next: [usize; SEARCHES],
    nearest: usize,
}

impl Search {
    pub(super) fn new() -> Result<Self, regex::Error> {
        let beginnings = Regex::new(BEGINNINGS)?;
        let escapes = Regex::new(ESCAPES)?;
        Ok(Self {
            beginnings,
            escapes,
        })
    }

    /// Where one of the searches finds its first word at or behind `from`.
    fn find(&self, number: usize, text: &[u8], from: usize) -> Option<usize> {
        let mut start = from;
        while start < text.len() {
            let end = (start + SLICE_BYTES).min(text.len());
            // What begins in this slice may end in the next one.
            let slice = text.get(start..(end + LONGEST_FOUND).min(text.len()))?;
            let found = self.find_in(number, text, start, slice);
            if let Some(at) = found.filter(|at| *at < end) {
                return Some(at);
            }
            breathe_after(end - start);
            start = end;
        }
        None
    }

    /// Where a search finds its first word in the part of a text that begins at `from`.
    fn find_in(&self, number: usize, text: &[u8], from: usize, part: &[u8]) -> Option<usize> {
        let found = match number {
            0 => {
                let beginnings = self.beginnings.find_iter(part);
                let mut places = beginnings.map(|beginning| beginning.start());
                places.find(|at| {
                    let mut words = COMMON_WORDS.iter();
                    words.any(|(before, word)| {
                        starts_with(text, from + at, word) && ends_with(text, from + at, before)
                    })
                })
            }
            1 => memchr2_iter(b'k', b'K', part).find(|at| is_k_of_word(text, from + at)),
            2 => memchr2_iter(b'w', b'W', part).find(|at| ends_with(text, from + at, b"pass")),
            3 => memchr2_iter(b'h', b'H', part).find(|at| ends_with(text, from + at, b"passp")),
            4 => {
                memchr3_iter(b'D', b'L', b'O', part).find(|at| is_capital_of_word(text, from + at))
            }
            _ => {
                let mut escapes = self.escapes.find_iter(part).map(|escape| escape.start());
                escapes.find(|at| may_be_in_word(text, from + at))
            }
        };
        found.map(|at| from + at)
    }

    /// Whether any of the words is in a text.
    pub(super) fn finds_any(&self, text: &[u8]) -> bool {
        (0..SEARCHES).any(|number| self.find(number, text, 0).is_some())
    }

    /// Whether a JSON text may hold something to redact: a word in a key or value that counts, not
    /// just in the key of a reference or in a sentence.
    pub(super) fn finds_any_that_counts(&self, text: &[u8], with_secret_keys: bool) -> bool {
        let mut words = Words::new(self, text, 0);
        let mut done = 0;
        let has_values = LazyCell::new(|| memmem::find(text, b"\"value\"").is_some());
        while words.are_between(done, text.len()) {
            // NOTE: strings are looked at once, however many words they have, or this would take
            // quadratic time.
            let Some(start) = start_of_string(text, done, words.nearest) else {
                return true;
            };
            let end = end_of_string(text, start);
            let is_secret_key = |key: &str| with_secret_keys && names_secret(key);
            // Most are names of keys in a reference.
            let is_name_of_value = |name: &str| is_secret_key(name) && *has_values;
            if counts(text, start, end, is_secret_key, is_name_of_value) {
                return true;
            }
            breathe_after(end - start);
            done = end;
        }
        false
    }
}

impl<'t, 's> Words<'t, 's> {
    /// Those from a place on.
    pub(super) fn new(search: &'s Search, text: &'t [u8], start: usize) -> Self {
        let mut words = Self {
            search,
            text,
            next: [0; SEARCHES],
            nearest: 0,
        };
        words.search_from(start);
        words
    }

    /// Whether a word is between these places; neither may be before an earlier one.
    #[inline]
    pub(super) fn are_between(&mut self, start: usize, end: usize) -> bool {
        if self.nearest < start {
            self.search_from(start);
        }
        self.nearest < end
    }

    fn search_from(&mut self, from: usize) {
        for (number, next) in self.next.iter_mut().enumerate() {
            if *next <= from {
                *next = self
                    .search
                    .find(number, self.text, from)
                    .unwrap_or(usize::MAX);
            }
        }
        self.nearest = self.next.iter().copied().min().unwrap_or(usize::MAX);
    }
}

/// Whether the string between these places may be a reason to redact something.
fn counts(
    text: &[u8],
    start: usize,
    end: usize,
    is_secret_key: impl Fn(&str) -> bool,
    is_name_of_value: impl Fn(&str) -> bool,
) -> bool {
    let content = text.get(start + 1..end.saturating_sub(1));
    let Ok(content) = std::str::from_utf8(content.unwrap_or_default()) else {
        return true;
    };
    // It may hold a manifest, or be something else than it looks.
    if may_hold_manifest(content) {
        return true;
    }
    if next_byte(text, end) == Some(b':') {
        return matches!(content, "connectionDetails" | "credentials" | "stringData")
            || (is_secret_key(content) && has_string(text, end));
    }
    content.contains(PRIVATE_KEY)
        || match key_before(text, start) {
            Some(b"kind") => content.contains("Secret") || content == "List",
            Some(b"type") => true,
            Some(b"name" | b"key") => is_name_of_value(content),
            _ => false,
        }
}

/// Whether the value of the key that ends here is a string.
fn has_string(text: &[u8], end_of_key: usize) -> bool {
    let rest = text.get(end_of_key..).unwrap_or_default();
    let colon = rest.iter().position(|byte| *byte == b':');
    colon.is_some_and(|colon| next_byte(rest, colon + 1) == Some(b'"'))
}

/// The key of the value that begins at `start`, if it is a member of an object.
fn key_before(text: &[u8], start: usize) -> Option<&[u8]> {
    let before = text.get(..start)?.trim_ascii_end();
    let before = before.strip_suffix(b":")?.trim_ascii_end();
    let before = before.strip_suffix(b"\"")?;
    let quote = memrchr(b'"', before)?;
    before.get(quote + 1..)
}

/// The opening quote of the string around a place, no earlier than `from`.
fn start_of_string(text: &[u8], from: usize, place: usize) -> Option<usize> {
    // The place may be that of the quote.
    let mut end = place + 1;
    loop {
        let quote = from + memrchr(b'"', text.get(from..end)?)?;
        let before = text.get(from..quote)?.iter().rev();
        let escapes = before.take_while(|byte| **byte == b'\\').count();
        if escapes.is_multiple_of(2) {
            return Some(quote);
        }
        end = quote;
    }
}

/// Whether the escape that begins here may stand for a part of a word.
fn may_be_in_word(text: &[u8], at: usize) -> bool {
    let is_number = matches!(text.get(at + 1), Some(b'U' | b'u' | b'x'));
    let mut before = text.get(..at).unwrap_or_default().iter().rev();
    // NOTE: scripts are full of line breaks behind a space and a backslash.
    is_number
        || before
            .find(|byte| **byte != b'\\')
            .is_some_and(u8::is_ascii_alphanumeric)
}

/// token, apiKey, privateKey, kubeconfig, and the types of Secrets that Kubernetes defines.
fn is_k_of_word(text: &[u8], at: usize) -> bool {
    match text.get(at + 1) {
        Some(b'e' | b'E') => match text.get(at + 2) {
            Some(b'n' | b'N') => ends_with(text, at, b"to"),
            Some(b'y' | b'Y') => {
                let before = text.get(at.wrapping_sub(1)).copied();
                let end = at - usize::from(before.is_some_and(is_separator));
                ends_with(text, end, b"api") || ends_with(text, end, b"private")
            }
            _ => false,
        },
        Some(b'u' | b'U') => starts_with(text, at, b"kubeconfig") || is_type_of_secret(text, at),
        _ => false,
    }
}

/// kubernetes.io/tls and the like, also if the slash is escaped.
fn is_type_of_secret(text: &[u8], at: usize) -> bool {
    let is_domain = starts_with(text, at, DOMAIN)
        && !at
            .checked_sub(1)
            .and_then(|before| text.get(before))
            .is_some_and(|before| matches!(before, b'.' | b'-'));
    let rest = text.get(at + DOMAIN.len()..).unwrap_or_default();
    let slash = rest.iter().position(|byte| *byte != b'\\');
    let name = slash.and_then(|slash| rest.get(slash..));
    // basic-auth, dockerconfigjson, service-account-token, ssh-auth, tls
    is_domain && matches!(name, Some([b'/', b'b' | b'd' | b's' | b't', ..]))
}

/// stringData, connectionDetails, "List, Opaque.
fn is_capital_of_word(text: &[u8], at: usize) -> bool {
    let (before, rest) = text.split_at_checked(at).unwrap_or_default();
    match rest.first() {
        Some(b'D') => {
            (rest.starts_with(b"Data") && before.ends_with(b"string"))
                || (rest.starts_with(b"Details") && before.ends_with(b"connection"))
        }
        Some(b'L') => rest.starts_with(b"List") && before.ends_with(b"\""),
        _ => rest.starts_with(b"Opaque"),
    }
}

fn starts_with(text: &[u8], at: usize, word: &[u8]) -> bool {
    let head = text.get(at..at + word.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(word))
}

fn ends_with(text: &[u8], end: usize, word: &[u8]) -> bool {
    let start = end.checked_sub(word.len());
    let tail = start.and_then(|start| text.get(start..end));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redact::frames::SECRET_TYPES;

    /// A text with each letter in a case of its own.
    fn any_case(word: &'static str) -> impl Strategy<Value = String> {
        prop::collection::vec(any::<bool>(), word.len()).prop_map(move |upper| {
            let letters = word.chars().zip(upper).map(|(letter, upper)| {
                if upper {
                    letter.to_ascii_uppercase()
                } else {
                    letter.to_ascii_lowercase()
                }
            });
            letters.collect()
        })
    }

    /// A key with a word that names a secret, in any case and position, and with any separator.
    fn any_key() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            any_case("password"),
            any_case("passwd"),
            any_case("passphrase"),
            any_case("token"),
            any_case("secret"),
            any_case("kubeconfig"),
            (any_case("api"), "[-_. ]?", any_case("key")).prop_map(|(a, b, c)| a + &b + &c),
            (any_case("private"), "[-_. ]?", any_case("key")).prop_map(|(a, b, c)| a + &b + &c),
            (any_case("connection"), "[-_. ]?", any_case("string"))
                .prop_map(|(a, b, c)| a + &b + &c),
        ];
        // Letters that the searches look at, too.
        let around = "[a-zA-Z0-9_./é-]{0,4}|[secnokwhDL]{0,5}|crede|kubernetes|onne";
        (around, word, around).prop_map(|(before, word, after)| before + &word + &after)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn whatever_names_a_secret_is_found(key in any_key()) {
            let search = Search::new().unwrap();
            prop_assume!(names_secret(&key));
            prop_assert!(search.finds_any(key.as_bytes()));
            for payload in [
                format!(r#"{{"a":1,"{key}":"x"}}"#),
                format!(r#"[{{"name" : "{key}", "value":"x"}}]"#),
                format!(r#"{{"a":"apiVersion: v1\nkind: X\n{key}: x"}}"#),
            ] {
                prop_assert!(search.finds_any_that_counts(payload.as_bytes(), true), "{payload}");
            }
        }

        #[test]
        fn words_are_found_wherever_a_slice_ends(
            word in prop::sample::select(&["sEcret", "credentials", "aToken", "stringData", "x\\\\\\n"][..]),
            before in 0..24_usize,
        ) {
            let search = Search::new().unwrap();
            let text = format!("{}{word}", "-".repeat(2 * SLICE_BYTES - before));
            prop_assert!(search.finds_any(text.as_bytes()));
            prop_assert!(!search.finds_any("-".repeat(2 * SLICE_BYTES).as_bytes()));
        }
    }

    #[test]
    fn whatever_else_makes_something_a_secret_is_found() {
        let search = Search::new().unwrap();
        let others = [
            r#""kind":"MySecret""#,
            r#""kind":"List""#,
            "stringData",
            "connectionDetails",
            "credentials",
            PRIVATE_KEY,
        ];
        for word in others.iter().chain(&SECRET_TYPES) {
            assert!(search.finds_any(word.as_bytes()), "{word}");
        }
    }
}
