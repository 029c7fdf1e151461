//! Environment variables as OpenTelemetry defines them.
//!
//! Invariant: an empty variable counts as unset, and so does one whose value makes no sense: it is
//! noted with what to write instead, and the default applies. Nothing about telemetry may keep the
//! program from starting. A note never shows a value that could be a credential.

use std::fmt;

/// Where variables come from.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable, or a part of one, that has no effect because its value is not valid.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IgnoredSetting {
    pub variable: String,
    pub problem: String,
}

/// Reads variables, and notes those that are ignored.
pub(super) struct Reader<'a> {
    lookup: Lookup<'a>,
    ignored: &'a mut Vec<IgnoredSetting>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(lookup: Lookup<'a>, ignored: &'a mut Vec<IgnoredSetting>) -> Self {
        Self { lookup, ignored }
    }

    pub(super) fn text(&self, variable: &str) -> Option<String> {
        let value = (self.lookup)(variable)?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// A keyword; the specification has them in any case.
    pub(super) fn keyword(&self, variable: &str) -> Option<String> {
        self.text(variable).map(|text| text.to_ascii_lowercase())
    }

    /// The same setting is read for each signal: what is wrong with it is noted once.
    pub(super) fn ignore(&mut self, variable: &str, problem: impl fmt::Display) {
        let ignored = IgnoredSetting {
            variable: variable.to_owned(),
            problem: problem.to_string(),
        };
        if !self.ignored.contains(&ignored) {
            self.ignored.push(ignored);
        }
    }

    /// Whether something about this variable was noted.
    pub(super) fn has_ignored(&self, variable: &str) -> bool {
        self.ignored
            .iter()
            .any(|ignored| ignored.variable == variable)
    }

    /// The value of the first of these variables that is set and valid.
    pub(super) fn parsed<T>(
        &mut self,
        variables: &[&str],
        parse: impl Fn(&str, &str) -> Result<T, String>,
    ) -> Option<T> {
        variables.iter().find_map(|variable| {
            let value = self.text(variable)?;
            let parsed = parse(variable, &value);
            parsed
                .map_err(|problem| self.ignore(variable, problem))
                .ok()
        })
    }

    /// The first of these variables that is set decides. NOTE: as specified, everything but `true`
    /// is false, and not the default.
    pub(super) fn boolean(&mut self, variables: &[&str]) -> bool {
        let set = variables
            .iter()
            .find_map(|variable| Some((*variable, self.keyword(variable)?)));
        let Some((variable, value)) = set else {
            return false;
        };
        if !matches!(value.as_str(), "true" | "false") {
            let problem = format!("{value:?} counts as false; use true or false");
            self.ignore(variable, problem);
        }
        value == "true"
    }

    /// Keywords in a list, without those that are not known.
    pub(super) fn keywords(&mut self, variable: &str, known: &[&str]) -> Vec<String> {
        let text = self.keyword(variable).unwrap_or_default();
        let words = text.split(',').map(str::trim);
        let mut kept = Vec::new();
        for word in words.filter(|word| !word.is_empty()) {
            if known.contains(&word) {
                kept.push(word.to_owned());
            } else {
                let known = known.join(", ");
                self.ignore(variable, format!("{word:?} is not supported; use {known}"));
            }
        }
        kept
    }
}

/// `key=value,key=value`, the values percent-encoded: each pair, or what is wrong with it.
pub(super) fn parse_pairs(
    text: &str,
) -> impl Iterator<Item = Result<(String, Vec<u8>), String>> + '_ {
    let entries = text.split(',').zip(1..);
    let filled = entries.filter(|(entry, _)| !entry.trim().is_empty());
    filled.map(|(entry, number)| {
        let (key, value) = entry
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty())
            .ok_or_else(|| format!("entry {number} is not a pair; use key=value,key=value"))?;
        let value = percent_decoded(value.trim()).ok_or_else(|| {
            format!("entry {number} has a % that encodes nothing; use %25 for the sign itself")
        })?;
        Ok((key.trim().to_owned(), value))
    })
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
        let pairs: Result<Vec<_>, _> = parse_pairs(" a = b%20c%3D ,, d=e=f ,g=").collect();
        let expected = [("a", "b c="), ("d", "e=f"), ("g", "")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(pairs.unwrap(), expected);
        assert_eq!(parse_pairs("").count(), 0);
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
            let wrong: Vec<_> = parse_pairs(text).filter_map(Result::err).collect();
            assert_eq!(wrong.len(), 1, "{text}");
            assert!(wrong[0].starts_with(place), "{text}: {wrong:?}");
            assert!(!wrong[0].contains("secret"), "{text}: {wrong:?}");
        }
    }

    #[test]
    fn a_boolean_is_true_only_if_it_says_so() {
        for (own, general, expected, ignored) in [
            (None, None, false, 0),
            (None, Some("TRUE"), true, 0),
            (Some("false"), Some("true"), false, 0),
            (Some(" "), Some("true"), true, 0),
            (Some("1"), Some("true"), false, 1),
            (Some("yes"), None, false, 1),
        ] {
            let lookup = |name: &str| if name == "own" { own } else { general };
            let lookup = |name: &str| lookup(name).map(ToOwned::to_owned);
            let mut noted = Vec::new();
            let value = Reader::new(&lookup, &mut noted).boolean(&["own", "general"]);
            assert_eq!(
                (value, noted.len()),
                (expected, ignored),
                "{own:?} {general:?}"
            );
        }
    }
}
