//! A JSON value in 64 bits, and the leaves below it.
//!
//! Invariant: whitespace, the order of members and the way a number is written change nothing;
//! anything else changes the digest, but for chance. Nothing is allocated for a leaf: its path is
//! hashed from that of what it stands in. Past what may be looked at, the digest means nothing.

use serde::de::{MapAccess, SeqAccess};
use twox_hash::XxHash3_64;

use super::{
    allowance::Allowance,
    json::{As, Name, Scalar, Shape, skip, skip_items, skip_members},
};

/// The path of a resource's body.
pub(super) const ROOT: u64 = 0x9E37_79B9_7F4A_7C15;

// What is of different types must not be equal: these numbers are arbitrary.
const NULL: u64 = 0xA076_1D64_78BD_642F;
const TRUE: u64 = 0xE703_7ED1_A0B4_28DB;
const FALSE: u64 = 0x8EBC_6AF0_9C88_C6E3;
const NUMBER: u64 = 0x5899_65CC_7537_4CC3;
const OBJECT: u64 = 0x1D8E_4E27_C47D_124F;
const ARRAY: u64 = 0xEB44_ACCA_B455_D165;
const INDEX: u64 = 0x2D35_8DCC_AA6C_78A5;

/// One step of a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Segment<'n> {
    Member(&'n str),
    Element(u64),
}

/// Whoever wants to know of the leaves: strings, numbers and truth values. Nulls and empty
/// containers are none; Kubernetes drops them.
pub(super) trait Leaves {
    /// Whether the member with this path is left out, of the digest too.
    fn skips(&self, path: u64) -> bool;

    /// Goes down; gives what to [`Self::leave`] with.
    fn enter(&mut self, segment: Segment<'_>) -> usize;

    fn leave(&mut self, mark: usize);

    fn leaf(&mut self, path: u64, value: u64);
}

/// For who wants only the digest.
#[derive(Debug)]
pub(super) struct NoLeaves;

impl Leaves for NoLeaves {
    fn skips(&self, _: u64) -> bool {
        false
    }

    fn enter(&mut self, _: Segment<'_>) -> usize {
        0
    }

    fn leave(&mut self, _: usize) {}

    fn leaf(&mut self, _: u64, _: u64) {}
}

/// Digests a value.
#[derive(Debug)]
pub(super) struct Digest<'l, L> {
    pub(super) path: u64,
    pub(super) leaves: &'l mut L,
    pub(super) allowance: &'l Allowance,
}

impl<L: Leaves> Shape for Digest<'_, L> {
    type Value = u64;

    fn scalar(self, scalar: Scalar<'_>) -> u64 {
        let value = match scalar {
            Scalar::Null | Scalar::Container => return NULL,
            Scalar::Flag(true) => TRUE,
            Scalar::Flag(false) => FALSE,
            Scalar::Integer(number) => hash_integer(number),
            Scalar::Number(number) => hash_number(number),
            Scalar::Text(text) => hash(text),
        };
        self.leaves.leaf(self.path, value);
        value
    }

    fn object<'de, A: MapAccess<'de>>(self, mut members: A) -> Result<u64, A::Error> {
        let allowance = self.allowance;
        let mut sum = OBJECT;
        let mut count = 0;
        loop {
            if !allowance.take() {
                skip_members(&mut members, allowance)?;
                return Ok(NULL);
            }
            let enter = |name: &str| {
                let key = hash(name);
                let path = mix(self.path, key);
                let is_wanted = !self.leaves.skips(path);
                let mark = is_wanted.then(|| self.leaves.enter(Segment::Member(name)));
                (key, path, mark)
            };
            let Some((key, path, mark)) = members.next_key_seed(Name(enter))? else {
                return Ok(mix(sum, count));
            };
            let Some(mark) = mark else {
                skip(&mut members)?;
                continue;
            };
            let leaves = &mut *self.leaves;
            let value = members.next_value_seed(As(Digest {
                path,
                leaves,
                allowance,
            }))?;
            self.leaves.leave(mark);
            // NOTE: a sum, so that the order of members does not matter.
            sum = sum.wrapping_add(mix(key, value));
            count += 1;
        }
    }

    fn array<'de, A: SeqAccess<'de>>(self, mut elements: A) -> Result<u64, A::Error> {
        let allowance = self.allowance;
        let mut digest = ARRAY;
        for index in 0_u64.. {
            if !allowance.take() {
                skip_items(&mut elements, allowance)?;
                return Ok(NULL);
            }
            let path = mix(self.path, INDEX.wrapping_add(index));
            // NOTE: entered before it is known whether there is another element, so left again.
            let mark = self.leaves.enter(Segment::Element(index));
            let leaves = &mut *self.leaves;
            let value = elements.next_element_seed(As(Digest {
                path,
                leaves,
                allowance,
            }))?;
            self.leaves.leave(mark);
            let Some(value) = value else {
                break;
            };
            digest = mix(digest, value);
        }
        Ok(digest)
    }
}

/// Digests the value of a member, which is the body of a resource.
pub(super) fn digest_body<'de, A: MapAccess<'de>, L: Leaves>(
    members: &mut A,
    leaves: &mut L,
    allowance: &Allowance,
) -> Result<u64, A::Error> {
    members.next_value_seed(As(Digest {
        path: ROOT,
        leaves,
        allowance,
    }))
}

pub(super) fn hash(text: &str) -> u64 {
    XxHash3_64::oneshot(text.as_bytes())
}

/// The path of a member of what has this path.
pub(super) fn member_path(path: u64, name: &str) -> u64 {
    mix(path, hash(name))
}

/// Two hashes as one; their order matters.
pub(super) const fn mix(first: u64, second: u64) -> u64 {
    let mut mixed = first
        .wrapping_mul(0xFF51_AFD7_ED55_8CCD)
        .rotate_left(29)
        .wrapping_add(second)
        .wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(0x9FB2_1C65_1E98_DF25);
    mixed ^ (mixed >> 29)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of the protocol are doubles"
)]
fn hash_integer(number: i64) -> u64 {
    hash_number(number as f64)
}

fn hash_number(number: f64) -> u64 {
    // Adding zero makes a negative zero positive.
    mix(NUMBER, (number + 0.0).to_bits())
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeSeed as _;

    use super::*;

    fn digest(json: &str) -> u64 {
        let mut leaves = NoLeaves;
        let digest = Digest {
            path: ROOT,
            leaves: &mut leaves,
            allowance: &Allowance::default(),
        };
        As(digest)
            .deserialize(&mut serde_json::Deserializer::from_str(json))
            .unwrap()
    }

    #[test]
    fn spelling_does_not_matter() {
        let plain = digest(r#"{"a":1,"b":[true,{"c":"é"}]}"#);
        assert_eq!(
            plain,
            digest("{ \"b\": [ true, {\"c\":\"\\u00e9\"} ],\n\"a\": 1.0 }")
        );
        assert_eq!(digest("-0.0"), digest("0"));
        assert_eq!(digest("1e2"), digest("100"));
    }

    #[test]
    fn values_that_look_alike_differ() {
        let all = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "-1",
            r#""""#,
            r#""0""#,
            r#""null""#,
            "{}",
            "[]",
            "[[]]",
            "[{}]",
            "[null]",
            "[0]",
            "[0,0]",
            r#"{"a":0}"#,
            r#"{"a":null}"#,
            r#"{"a":{}}"#,
            r#"{"a":0,"b":0}"#,
            r#"{"a":{"b":0}}"#,
            "[0,1]",
            "[1,0]",
        ];
        let digests: std::collections::HashSet<_> = all.iter().map(|json| digest(json)).collect();
        assert_eq!(digests.len(), all.len());
    }

    #[test]
    fn a_value_can_not_change_places_with_another() {
        assert_ne!(digest(r#"{"a":1,"b":2}"#), digest(r#"{"a":2,"b":1}"#));
        assert_ne!(
            digest(r#"{"a":{"x":1},"b":{"x":2}}"#),
            digest(r#"{"a":{"x":2},"b":{"x":1}}"#)
        );
    }

    #[test]
    fn leaves_have_paths_of_their_own() {
        #[derive(Default)]
        struct Paths(Vec<(u64, u64)>);

        impl Leaves for Paths {
            fn skips(&self, path: u64) -> bool {
                path == member_path(ROOT, "skipped")
            }

            fn enter(&mut self, _: Segment<'_>) -> usize {
                0
            }

            fn leave(&mut self, _: usize) {}

            fn leaf(&mut self, path: u64, value: u64) {
                self.0.push((path, value));
            }
        }

        let json = r#"{"a":{"b":[7,{"c":7}]},"b":7,"n":null,"e":[{}],"skipped":{"d":7}}"#;
        let mut leaves = Paths::default();
        let digest = Digest {
            path: ROOT,
            leaves: &mut leaves,
            allowance: &Allowance::default(),
        };
        As(digest)
            .deserialize(&mut serde_json::Deserializer::from_str(json))
            .unwrap();
        let [first, second, third] = leaves.0[..] else {
            panic!("{:?}", leaves.0);
        };
        assert_eq!((first.1, second.1), (third.1, third.1));
        assert_eq!(third.0, member_path(ROOT, "b"));
        assert!(first.0 != second.0 && second.0 != third.0 && first.0 != third.0);
    }
}
