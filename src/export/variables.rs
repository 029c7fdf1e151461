//! Environment variables as OpenTelemetry writes them.
//!
//! Invariant: an empty variable is an unset one; every mistake is kept, names its variable and
//! says what to write, and never shows a value that could be a credential.

use std::fmt;

/// Where variables come from.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads variables, and keeps the mistakes in them.
pub(super) struct Reader<'a> {
    lookup: Lookup<'a>,
    mistakes: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(lookup: Lookup<'a>) -> Self {
        Self {
            lookup,
            mistakes: Vec::new(),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = (self.lookup)(name)?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    pub(super) fn mistake(&mut self, name: &str, what: impl fmt::Display) {
        self.mistakes.push(format!("{name}: {what}"));
    }

    /// A value, if the variable is set and what it says makes sense.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.text(name)?;
        parse(&value).map_err(|what| self.mistake(name, what)).ok()
    }

    /// The value, unless there was a mistake.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.mistakes.is_empty() {
            Ok(value)
        } else {
            Err(self.mistakes)
        }
    }
}

pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// `key=value,key=value`, the values percent-encoded.
pub(super) fn parse_pairs(text: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let entries = text.split(',').enumerate();
    let filled = entries.filter(|(_, entry)| !entry.trim().is_empty());
    filled
        .map(|(at, entry)| {
            let at = at + 1;
            let (key, value) = entry
                .split_once('=')
                .filter(|(key, _)| !key.trim().is_empty())
                .ok_or_else(|| format!("entry {at} is no pair; write key=value,key=value"))?;
            let value = percent_decoded(value.trim()).ok_or_else(|| {
                format!("entry {at} has a % that encodes nothing; write %25 for the sign itself")
            })?;
            Ok((key.trim().to_owned(), value))
        })
        .collect()
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            decoded.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let pairs = parse_pairs(" a = b%20c%3D ,, d=e=f ,g=").unwrap();
        let expected = [("a", "b c="), ("d", "e=f"), ("g", "")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(pairs, expected);
        assert_eq!(parse_pairs("").unwrap(), []);
    }

    #[test]
    fn wrong_pairs_are_named_by_number_and_never_shown() {
        for (text, place) in [
            ("secret", "entry 1"),
            ("a=b,=secret", "entry 2"),
            ("a=secret%", "entry 1"),
            ("a=secret%4", "entry 1"),
            ("a=b,c=secret%zz", "entry 2"),
        ] {
            let mistake = parse_pairs(text).unwrap_err();
            assert!(mistake.starts_with(place), "{text}: {mistake}");
            assert!(!mistake.contains("secret"), "{text}: {mistake}");
        }
    }
}
