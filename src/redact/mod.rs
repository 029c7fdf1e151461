//! Takes secret values out of payloads, behind Crossplane's own redaction.
//!
//! What counts as secret, anywhere in a payload:
//!
//! - `data` and `stringData` of a `v1/Secret`, also of one wrapped in another object's manifest;
//! - a `last-applied-configuration` annotation of a Secret, or one that mentions a Secret;
//! - `connectionDetails` and `credentials`;
//! - what the user names by JSON pointer or by a pattern for keys.
//!
//! Keys stay, values become `**REDACTED**`. Invariant: every byte outside of a redacted value is
//! the byte that came; a payload with nothing to redact is handed back as it is. What is no JSON
//! can't be searched, so it is withheld whole if it so much as mentions one of these things.

mod scan;
mod tokens;

use bytes::Bytes;
use memchr::memmem;
use regex::RegexSet;

use self::scan::find_secret_values;

/// What stands in place of a secret value, here and in Crossplane.
pub const REDACTED: &str = "**REDACTED**";

/// A payload holds nothing to redact unless one of these words, or a character written as an
/// escape, stands in it.
const SUSPICIOUS_WORDS: [&[u8]; 4] = [b"Secret", b"connectionDetails", b"credentials", b"\\u"];

/// The user's rules can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("{0:?} is no JSON pointer: it must begin with `/`")]
    Pointer(String),
    #[error("cannot use key pattern")]
    KeyPattern(#[from] regex::Error),
}

/// What to take out.
#[derive(Clone, Debug)]
pub struct Redactor {
    rules: Rules,
}

/// What the user wants taken out besides.
#[derive(Clone, Debug, Default)]
struct Rules {
    pointers: Vec<Pointer>,
    keys: RegexSet,
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
        };
        Ok(Self { rules })
    }

    /// Takes the secrets out of a payload.
    pub fn redact(&self, payload: &Bytes) -> Redacted {
        if payload.is_empty() {
            return Redacted {
                payload: CleanPayload::Empty,
                values: 0,
            };
        }
        let Ok(text) = std::str::from_utf8(payload) else {
            return self.withhold_if_suspicious(payload, CleanPayload::Binary);
        };
        if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            return self.withhold_if_suspicious(payload, CleanPayload::Text);
        }
        if self.has_nothing_to_hide(payload) {
            return Redacted {
                payload: CleanPayload::Json(payload.clone()),
                values: 0,
            };
        }
        let spans = find_secret_values(text, &self.rules);
        let values = spans.len() as u64;
        let clean = if spans.is_empty() {
            payload.clone()
        } else {
            replace(payload, &spans)
        };
        Redacted {
            payload: CleanPayload::Json(clean),
            values,
        }
    }

    /// Whether a payload is handed back as it is, whatever is in it.
    pub fn has_nothing_to_hide(&self, payload: &[u8]) -> bool {
        self.rules.pointers.is_empty() && self.rules.keys.is_empty() && !mentions_secret(payload)
    }

    fn withhold_if_suspicious(
        &self,
        payload: &Bytes,
        clean: impl FnOnce(Bytes) -> CleanPayload,
    ) -> Redacted {
        if self.has_nothing_to_hide(payload) {
            return Redacted {
                payload: clean(payload.clone()),
                values: 0,
            };
        }
        let payload = CleanPayload::Text(Bytes::from_static(REDACTED.as_bytes()));
        Redacted { payload, values: 1 }
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

fn mentions_secret(payload: &[u8]) -> bool {
    SUSPICIOUS_WORDS
        .iter()
        .any(|word| memmem::find(payload, word).is_some())
}

fn replace(payload: &[u8], spans: &[std::ops::Range<usize>]) -> Bytes {
    let mut clean = Vec::with_capacity(payload.len());
    let mut copied = 0;
    for span in spans {
        clean.extend_from_slice(payload.get(copied..span.start).unwrap_or_default());
        clean.push(b'"');
        clean.extend_from_slice(REDACTED.as_bytes());
        clean.push(b'"');
        copied = span.end;
    }
    clean.extend_from_slice(payload.get(copied..).unwrap_or_default());
    clean.into()
}

#[cfg(test)]
mod tests;
