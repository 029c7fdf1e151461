//! What two payloads, or two reconciles, are told apart by: BLAKE3 of what came.
//!
//! Not SHA-256, which stands in the index for what was stored: most reconciles are the same again,
//! and hashing all of them is the most that the work behind the answer does. This takes half of the
//! time. Invariant: nobody can make two payloads with the same fingerprint, so what is linked to an
//! earlier object is equal to it.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Stands for what was hashed.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(content: &[u8]) -> Self {
        Self(blake3::hash(content).into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&blake3::Hash::from(self.0), out)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = Cow::<'de, str>::deserialize(deserializer)?;
        let hash = blake3::Hash::from_hex(digits.as_bytes()).map_err(D::Error::custom)?;
        Ok(Self(hash.into()))
    }
}

/// Hashes piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Fingerprinter(blake3::Hasher);

impl Fingerprinter {
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hash_to_what_the_whole_does() {
        let mut hasher = Fingerprinter::default();
        hasher.update(b"a reconcile ");
        hasher.update(b"in pieces");
        assert_eq!(hasher.finish(), Fingerprint::of(b"a reconcile in pieces"),);
        assert_ne!(Fingerprint::of(b"a"), Fingerprint::of(b"b"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let fingerprint = Fingerprint::of(b"x");
        let json = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(json.len(), 66, "{json}");
        assert_eq!(
            serde_json::from_str::<Fingerprint>(&json).unwrap(),
            fingerprint
        );
        for odd in ["\"\"", "\"xy\"", &json.replace('"', "\"0")] {
            assert!(serde_json::from_str::<Fingerprint>(odd).is_err(), "{odd}");
        }
    }
}
