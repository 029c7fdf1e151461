//! Takes secret values out of payloads, behind Crossplane's own redaction.
//!
//! docs/redaction.md lists what counts as a secret, place by place; `tests/redaction` proves it.
//! In short, anywhere in a payload, and in JSON and YAML inside of its strings:
//!
//! - `data` of anything whose kind is `Secret` or like it, `stringData`, and copies of either in a
//!   Secret's annotations;
//! - `connectionDetails` and `credentials`, but for references;
//! - strings whose key names a secret, such as `masterPassword`, but for references;
//! - what the user names by JSON pointer or by a pattern for keys.
//!
//! Keys stay, values become `**REDACTED**`. Invariant: every byte outside of a redacted value is
//! the byte that came; a payload with nothing to redact is handed back as it is. What can't be
//! searched (it isn't JSON, or has too many values to keep track of) is withheld whole if it so
//! much as mentions a secret. Memory is bounded whatever the payload: besides the payload itself one
//! copy of it, and a few megabytes.

mod breaks;
mod edits;
mod embedded;
mod frames;
mod keys;
mod manifests;
mod references;
mod scan;
mod tokens;
mod treatment;
mod words;

use bytes::Bytes;
use regex::RegexSet;

pub use self::{
    edits::MAX_VALUES,
    embedded::{MAX_EMBEDDED_BYTES, MAX_STRINGS},
    keys::PROPERTIES,
    scan::MAX_DEPTH,
};
use self::{edits::apply, embedded::is_json, scan::find_secret_values, words::Search};
use crate::fingerprint::Fingerprint;

/// What stands in place of a secret value, here and in Crossplane.
pub const REDACTED: &str = "**REDACTED**";

/// Crossplane redacts byte fields before they are written in base64.
const REDACTED_BASE64: &str = "KipSRURBQ1RFRCoq";

/// Raised when what is redacted by default changes.
const RULES_VERSION: u32 = 3;

/// The user's rules can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("{0:?} is not a JSON pointer: it must begin with `/`")]
    Pointer(String),
    #[error("cannot use key pattern")]
    KeyPattern(#[from] regex::Error),
}

/// What to take out.
#[derive(Clone, Debug)]
pub struct Redactor {
    rules: Rules,
}

/// What the user wants.
#[derive(Clone, Debug)]
struct Rules {
    pointers: Vec<Pointer>,
    keys: RegexSet,
    /// Keys such as `password` name a secret.
    secret_keys: bool,
    /// Finds what is under suspicion.
    search: Search,
}

/// A JSON pointer; a `*` in it stands for any key or index.
#[derive(Clone, Debug)]
struct Pointer(Vec<String>);

/// A payload without its secrets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Redacted {
    pub payload: CleanPayload,
    /// How many values were taken out.
    pub values: u64,
}

/// A payload that may leave the pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CleanPayload {
    /// Nothing came.
    Empty,
    /// Valid JSON, byte for byte as it came but for redacted values.
    Json(Bytes),
    /// Something else, in UTF-8.
    Text(Bytes),
    /// Something else.
    Binary(Bytes),
}

impl CleanPayload {
    /// What is left of it.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Json(bytes) | Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

impl Redactor {
    pub fn new<S: AsRef<str>>(pointers: &[S], key_patterns: &[S]) -> Result<Self, RuleError> {
        let pointers = pointers
            .iter()
            .map(|pointer| Pointer::parse(pointer.as_ref()));
        let rules = Rules {
            pointers: pointers.collect::<Result<_, _>>()?,
            keys: RegexSet::new(key_patterns)?,
            secret_keys: true,
            search: Search::new()?,
        };
        Ok(Self { rules })
    }

    /// Sets whether strings under keys such as `password` are redacted; they are by default.
    #[must_use]
    pub fn with_secret_keys(mut self, secret_keys: bool) -> Self {
        self.rules.secret_keys = secret_keys;
        self
    }

    /// What tells these rules from others: under the same rules a payload always has the same
    /// values redacted.
    pub fn rules(&self) -> String {
        let Rules {
            pointers,
            keys,
            secret_keys,
            search: _,
        } = &self.rules;
        let keys = keys.patterns();
        format!("{RULES_VERSION} {secret_keys} {pointers:?} {keys:?}")
    }

    /// A short name for [these rules](Self::rules), the same in each process.
    pub fn rules_id(&self) -> String {
        let mut id = Fingerprint::of(self.rules().as_bytes()).to_string();
        id.truncate(16);
        id
    }

    /// Takes the secrets out of a payload.
    pub fn redact(&self, payload: &Bytes) -> Redacted {
        let as_it_is = |clean: fn(Bytes) -> CleanPayload| Redacted {
            payload: clean(payload.clone()),
            values: 0,
        };
        if payload.is_empty() {
            return as_it_is(|_| CleanPayload::Empty);
        }
        let may_leave = || !self.rules.has_any() && !self.rules.search.finds_any(payload);
        let Ok(text) = std::str::from_utf8(payload) else {
            return if may_leave() {
                as_it_is(CleanPayload::Binary)
            } else {
                Redacted::withheld()
            };
        };
        if !is_json(text) {
            return if may_leave() {
                as_it_is(CleanPayload::Text)
            } else {
                Redacted::withheld()
            };
        }
        if self.has_nothing_to_hide(payload) {
            return as_it_is(CleanPayload::Json);
        }
        match find_secret_values(text, &self.rules, 0) {
            Ok(edits) if edits.is_empty() => as_it_is(CleanPayload::Json),
            Ok(edits) => Redacted {
                payload: CleanPayload::Json(apply(payload, &edits)),
                values: edits.len() as u64,
            },
            Err(_) => Redacted::withheld(),
        }
    }

    /// Whether a payload, if it is JSON, is handed back as it is.
    pub fn has_nothing_to_hide(&self, payload: &[u8]) -> bool {
        let Rules {
            search,
            secret_keys,
            ..
        } = &self.rules;
        !self.rules.has_any() && !search.finds_any_that_counts(payload, *secret_keys)
    }
}

impl Rules {
    /// Whether the user named something, which may be anywhere.
    fn has_any(&self) -> bool {
        !self.pointers.is_empty() || !self.keys.is_empty()
    }
}

impl Redacted {
    /// A payload of which nothing may leave the pod.
    fn withheld() -> Self {
        Self {
            payload: CleanPayload::Text(Bytes::from_static(REDACTED.as_bytes())),
            values: 1,
        }
    }
}

impl Pointer {
    fn parse(pointer: &str) -> Result<Self, RuleError> {
        let Some(path) = pointer.strip_prefix('/') else {
            return Err(RuleError::Pointer(pointer.to_owned()));
        };
        // RFC 6901: `~1` is a slash, `~0` a tilde, in this order.
        let unescape = |segment: &str| segment.replace("~1", "/").replace("~0", "~");
        Ok(Self(path.split('/').map(unescape).collect()))
    }
}

#[cfg(test)]
mod tests;
