//! Core's ids as OpenTelemetry's: 16 bytes for a trace, 8 for a span.
//!
//! A UUID gives its 16 bytes to the trace, and its low 8 to the span, so that an id is readable
//! off the UUID; 32 or 16 hex digits are taken as they are; anything else is hashed. Invariant:
//! the same string always gives the same id, and no id is all zeros.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A trace, as backends know it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OtelTraceId(pub [u8; 16]);

/// A span, as backends know it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OtelSpanId(pub [u8; 8]);

impl OtelTraceId {
    pub fn of(trace_id: &str) -> Self {
        let bytes = uuid_bytes(trace_id).or_else(|| hex_bytes(trace_id));
        let bytes = bytes.filter(|bytes| *bytes != [0; 16]);
        Self(bytes.unwrap_or_else(|| hashed("trace", trace_id)))
    }

    /// The root span of this trace; core has none, so its id is derived.
    pub fn root_span(self) -> OtelSpanId {
        OtelSpanId(hashed("root", &self.to_string()))
    }
}

impl OtelSpanId {
    pub fn of(span_id: &str) -> Self {
        let low_half = |uuid: [u8; 16]| uuid.last_chunk().copied();
        let bytes = uuid_bytes(span_id)
            .and_then(low_half)
            .or_else(|| hex_bytes(span_id));
        let bytes = bytes.filter(|bytes| *bytes != [0; 8]);
        Self(bytes.unwrap_or_else(|| hashed("span", span_id)))
    }
}

impl fmt::Display for OtelTraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Display for OtelSpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The bytes of a UUID in its usual form, with dashes.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<_> = text.split('-').collect();
    let has_form = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]);
    has_form.then(|| hex_bytes(&groups.concat())).flatten()
}

fn hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |character: u8| char::from(character).to_digit(16);
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(bytes)
}

/// What keeps traces and spans of the same string apart is what they are hashed with.
fn hashed<const N: usize>(what: &str, text: &str) -> [u8; N] {
    let mut hasher = Sha256::new();
    hasher.update(what);
    hasher.update([0]);
    hasher.update(text);
    let hash: [u8; 32] = hasher.finalize().into();
    let bytes = hash.first_chunk().copied().unwrap_or([1; N]);
    if bytes == [0; N] { [1; N] } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_readable_off_the_ids() {
        let uuid = "0f0a1b2c-3d4e-4f50-8172-93a4b5c6d7e8";
        assert_eq!(
            OtelTraceId::of(uuid).to_string(),
            "0f0a1b2c3d4e4f50817293a4b5c6d7e8"
        );
        assert_eq!(OtelSpanId::of(uuid).to_string(), "817293a4b5c6d7e8");
    }

    #[test]
    fn real_ids_are_taken_as_they_are() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(OtelTraceId::of(trace).to_string(), trace);
        assert_eq!(
            OtelSpanId::of("00F067AA0BA902B7").to_string(),
            "00f067aa0ba902b7"
        );
    }

    #[test]
    fn anything_else_is_hashed_and_never_zero() {
        let nil = "00000000-0000-0000-0000-000000000000";
        for odd in [
            "",
            "trace-789",
            nil,
            "é",
            "+f0a1b2c3d4e4f50817293a4b5c6d7e8",
            "0f0a1b2c3d4e-4f50-8172-93a4b5c6-d7e8",
        ] {
            assert_eq!(OtelTraceId::of(odd), OtelTraceId::of(odd), "{odd}");
            assert_ne!(OtelTraceId::of(odd).0, [0; 16], "{odd}");
            assert_ne!(OtelSpanId::of(odd).0, [0; 8], "{odd}");
        }
        assert_ne!(OtelTraceId::of("a"), OtelTraceId::of("b"));
    }
}
