//! Reads what is wanted of a JSON text in one pass, without building the rest.
//!
//! Invariant: a value of another type than expected costs that value and nothing else, and of two
//! members of one name the last counts. Only what is no JSON, or nested deeper than `serde_json`
//! goes, ends the reading.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::allowance::Allowance;
use crate::line::MAX_TEXT_BYTES;

/// A value that has no members.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar<'v> {
    Null,
    Flag(bool),
    Integer(i64),
    Number(f64),
    Text(&'v str),
    /// An object or an array where none was expected.
    Container,
}

/// What becomes of a value, whatever its type.
pub(super) trait Shape: Sized {
    type Value;

    fn scalar(self, scalar: Scalar<'_>) -> Self::Value;

    fn object<'de, A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.scalar(Scalar::Container))
    }

    fn array<'de, A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.scalar(Scalar::Container))
    }
}

/// Reads a value into a shape.
#[derive(Debug)]
pub(super) struct As<S>(pub(super) S);

impl<'de, S: Shape> DeserializeSeed<'de> for As<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de, S: Shape> Visitor<'de> for As<S> {
    type Value = S::Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<S::Value, E> {
        Ok(self.0.scalar(Scalar::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<S::Value, E> {
        Ok(self.0.scalar(Scalar::Flag(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<S::Value, E> {
        Ok(self.0.scalar(Scalar::Integer(number)))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of the protocol are doubles"
    )]
    fn visit_u64<E>(self, number: u64) -> Result<S::Value, E> {
        let scalar = i64::try_from(number).map_or(Scalar::Number(number as f64), Scalar::Integer);
        Ok(self.0.scalar(scalar))
    }

    fn visit_f64<E>(self, number: f64) -> Result<S::Value, E> {
        Ok(self.0.scalar(Scalar::Number(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<S::Value, E> {
        Ok(self.0.scalar(Scalar::Text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<S::Value, A::Error> {
        self.0.array(elements)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<S::Value, A::Error> {
        self.0.object(members)
    }
}

/// Hands the name of a member to a function.
#[derive(Debug)]
pub(super) struct Name<F>(pub(super) F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for Name<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<T, D::Error> {
        name.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> T> Visitor<'_> for Name<F> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<T, E> {
        Ok((self.0)(name))
    }
}

/// An object of which some members are wanted.
pub(super) trait Object {
    type Member;

    /// The member of this name; `None` if it is not wanted.
    fn member(&mut self, name: &str) -> Option<Self::Member>;

    /// Reads the value of that member: exactly one.
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: Self::Member,
        members: &mut A,
    ) -> Result<(), A::Error>;
}

/// What stood where an object was expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Found {
    Object,
    Null,
    Other,
}

/// Fills an object.
#[derive(Debug)]
pub(super) struct Fill<'o, O>(pub(super) &'o mut O);

impl<O: Object> Shape for Fill<'_, O> {
    type Value = Found;

    fn scalar(self, scalar: Scalar<'_>) -> Found {
        if scalar == Scalar::Null {
            Found::Null
        } else {
            Found::Other
        }
    }

    fn object<'de, A: MapAccess<'de>>(self, mut members: A) -> Result<Found, A::Error> {
        while let Some(member) = members.next_key_seed(Name(|name: &str| self.0.member(name)))? {
            match member {
                Some(member) => self.0.read(member, &mut members)?,
                None => skip(&mut members)?,
            }
        }
        Ok(Found::Object)
    }
}

/// Fills an object from each element of an array that is one, and hands it on.
#[derive(Debug)]
pub(super) struct Each<O, F> {
    pub(super) blank: fn() -> O,
    pub(super) take: F,
}

impl<O: Object, F: FnMut(O)> Shape for Each<O, F> {
    type Value = ();

    fn scalar(self, _: Scalar<'_>) {}

    fn array<'de, A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        loop {
            let mut element = (self.blank)();
            match elements.next_element_seed(As(Fill(&mut element)))? {
                Some(Found::Object) => (self.take)(element),
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}

/// Counts the elements of an array.
#[derive(Debug)]
pub(super) struct Count;

impl Shape for Count {
    type Value = u64;

    fn scalar(self, _: Scalar<'_>) -> u64 {
        0
    }

    fn array<'de, A: SeqAccess<'de>>(self, mut elements: A) -> Result<u64, A::Error> {
        let mut count = 0;
        while elements.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// Looks at a scalar.
#[derive(Debug)]
struct Look<F>(F);

impl<T, F: FnOnce(Scalar<'_>) -> T> Shape for Look<F> {
    type Value = T;

    fn scalar(self, scalar: Scalar<'_>) -> T {
        (self.0)(scalar)
    }
}

/// The value of a member, as far as a function makes something of it.
pub(super) fn look<'de, A: MapAccess<'de>, T>(
    members: &mut A,
    make: impl FnOnce(Scalar<'_>) -> T,
) -> Result<T, A::Error> {
    members.next_value_seed(As(Look(make)))
}

/// The value of a member, if it is a text; cut at [`MAX_TEXT_BYTES`].
pub(super) fn text<'de, A: MapAccess<'de>>(members: &mut A) -> Result<Option<String>, A::Error> {
    look(members, |scalar| match scalar {
        Scalar::Text(text) => Some(cut(text, MAX_TEXT_BYTES).to_owned()),
        _ => None,
    })
}

/// The value of a member is of no interest.
pub(super) fn skip<'de, A: MapAccess<'de>>(members: &mut A) -> Result<(), A::Error> {
    members.next_value::<IgnoredAny>().map(drop)
}

/// The members that are left are of no interest.
pub(super) fn skip_members<'de, A: MapAccess<'de>>(
    members: &mut A,
    allowance: &Allowance,
) -> Result<(), A::Error> {
    while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
        allowance.take();
    }
    Ok(())
}

/// The items that are left are of no interest.
pub(super) fn skip_items<'de, A: SeqAccess<'de>>(
    items: &mut A,
    allowance: &Allowance,
) -> Result<(), A::Error> {
    while items.next_element::<IgnoredAny>()?.is_some() {
        allowance.take();
    }
    Ok(())
}

/// Fills an object from the value of a member.
pub(super) fn fill<'de, A: MapAccess<'de>, O: Object>(
    members: &mut A,
    object: &mut O,
) -> Result<Found, A::Error> {
    members.next_value_seed(As(Fill(object)))
}

/// The name among these that is equal to this one, to match on.
pub(super) fn one_of(names: &[&'static str], name: &str) -> Option<&'static str> {
    names.iter().find(|known| **known == name).copied()
}

/// The beginning of a text, within so many bytes.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// Whether a whole text is an object, without a look at what it holds.
pub(super) fn is_object(json: &[u8]) -> bool {
    let text = std::str::from_utf8(json).unwrap_or_default();
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    is_json && text.trim_start().starts_with('{')
}

/// Fills an object from a whole text.
pub(super) fn parse<O: Object>(json: &[u8], object: &mut O) -> Result<(), serde_json::Error> {
    let text = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match As(Fill(object)).deserialize(&mut deserializer)? {
        Found::Object => deserializer.end(),
        Found::Null | Found::Other => Err(serde_json::Error::custom("no object")),
    }
}
