//! JSON as a tree that borrows from its text.
//!
//! Invariant: members stand in the order of their names, each name once, so that looking one up
//! and holding two trees against each other take no index. A text without escapes is not copied:
//! a tree usually takes some four times its text, where one of owned values takes eighteen. A text
//! that is made to can take many times that, so that values can be counted ([`Values`]).

mod diff;
mod lookup;
mod path;
mod subset;
mod unquoting;
mod walk;
mod words;
mod yaml;

use std::{borrow::Cow, cell::Cell, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
    ser::SerializeMap as _,
};
pub use serde_json::Number;

pub use self::{
    diff::{Change, diff, diff_up_to},
    path::{Path, Segment},
    subset::{is_missing_any, missing_from},
    walk::{Guide, Interest, Step, Walk, WalkError},
    yaml::{Piece, Scalar, YamlSink, scalar, write_yaml},
};
pub(crate) use self::{
    unquoting::{Meaning, NotAString, Unquote},
    words::reads_as_other_type,
};
use crate::pace::breathe;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'j> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'j, str>),
    List(Vec<Json<'j>>),
    Object(Vec<(Cow<'j, str>, Json<'j>)>),
}

/// How many values trees may have in all. Each takes up to a hundred bytes, however little text it
/// has.
#[derive(Debug)]
pub struct Values {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl Values {
    pub fn up_to(most: usize) -> Self {
        Self {
            left: Cell::new(most),
            is_exceeded: Cell::new(false),
        }
    }

    /// A tree was not read because there were too many.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    fn take(&self) -> bool {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.is_exceeded.set(true),
        }
        !self.is_exceeded.get()
    }
}

impl<'j> Json<'j> {
    pub fn parse(text: &'j str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Fails if it has more values than are left.
    pub fn parse_within(text: &'j str, values: &Values) -> serde_json::Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let tree = TreeVisitor(Some(values)).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(tree)
    }

    /// The member of an object.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let members = self.members()?;
        let place = members.binary_search_by(|(other, _)| other.as_ref().cmp(name));
        place
            .ok()
            .and_then(|place| members.get(place))
            .map(|(_, value)| value)
    }

    /// What stands at a JSON pointer, such as `/observed/resources/vpc`; empty for the whole.
    pub fn at_pointer(&self, pointer: &str) -> Option<&Self> {
        let mut names = pointer.split('/');
        if names.next() != Some("") {
            return None;
        }
        names.try_fold(self, |value, name| {
            let name = name.replace("~1", "/").replace("~0", "~");
            match value {
                Self::List(items) => items.get(name.parse::<usize>().ok()?),
                _ => value.member(&name),
            }
        })
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn members(&self) -> Option<&[(Cow<'j, str>, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// An object without members or a list without items.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::List(items) => items.is_empty(),
            Self::Object(members) => members.is_empty(),
            _ => false,
        }
    }
}

impl<'j> FromIterator<(Cow<'j, str>, Json<'j>)> for Json<'j> {
    /// An object; of members of one name the last one stays.
    fn from_iter<I: IntoIterator<Item = (Cow<'j, str>, Json<'j>)>>(members: I) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        settle(&mut members);
        Self::Object(members)
    }
}

fn settle<'j>(members: &mut Vec<(Cow<'j, str>, Json<'j>)>) {
    if members.is_sorted_by(|(one, _), (other, _)| one < other) {
        return;
    }
    // NOTE: the sort is stable, so that of members of one name the last one stays last.
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            std::mem::swap(later, earlier);
        }
        is_same
    });
}

impl<'de: 'j, 'j> Deserialize<'de> for Json<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TreeVisitor(None).deserialize(deserializer)
    }
}

#[derive(Clone, Copy)]
struct TreeVisitor<'v>(Option<&'v Values>);

impl<'de> DeserializeSeed<'de> for TreeVisitor<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        if self.0.is_some_and(|values| !values.take()) {
            return Err(D::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeVisitor<'_> {
    type Value = Json<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = elements.next_element_seed(self)? {
            items.push(item);
        }
        // NOTE: what is not used of it is up to three quarters.
        items.shrink_to_fit();
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(Name(name)) = entries.next_key()? {
            members.push((name, entries.next_value_seed(self)?));
        }
        settle(&mut members);
        members.shrink_to_fit();
        breathe();
        Ok(Json::Object(members))
    }
}

/// A member's name, borrowed where it can be: [`Cow`] alone always copies.
#[derive(Deserialize)]
struct Name<'j>(#[serde(borrow)] Cow<'j, str>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_the_last_of_each_stays() {
        let json = Json::parse(r#"{"b":1,"a":[true,null],"b":"two","a\u0062":-1.5}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&json).unwrap(),
            r#"{"a":[true,null],"ab":-1.5,"b":"two"}"#
        );
        assert_eq!(json.member("b").and_then(Json::text), Some("two"));
        assert_eq!(json.member("c"), None);
    }

    #[test]
    fn texts_are_borrowed_unless_they_are_escaped() {
        let json = Json::parse(r#"{"plain":"x","escaped":"\n"}"#).unwrap();
        let is_borrowed = |name| match json.member(name) {
            Some(Json::Text(text)) => matches!(text, Cow::Borrowed(_)),
            _ => false,
        };
        assert!(is_borrowed("plain") && !is_borrowed("escaped"));
        let members = json.members().unwrap();
        assert!(
            members
                .iter()
                .all(|(name, _)| matches!(name, Cow::Borrowed(_)))
        );
    }

    #[test]
    fn values_are_counted() {
        let text = r#"{"a":[1,{"b":null}],"c":"d"}"#;
        let values = Values::up_to(6);
        assert_eq!(
            Json::parse_within(text, &values).unwrap(),
            Json::parse(text).unwrap()
        );
        assert!(!values.is_exceeded());
        Json::parse_within("1", &values).unwrap_err();
        assert!(values.is_exceeded());
        let values = Values::up_to(5);
        Json::parse_within(text, &values).unwrap_err();
        assert!(values.is_exceeded());
        let values = Values::up_to(5);
        Json::parse_within("[1] 2", &values).unwrap_err();
        assert!(!values.is_exceeded(), "it is no JSON");
    }

    #[test]
    fn pointers_reach_into_lists_and_odd_names() {
        let json = Json::parse(r#"{"a/b":{"~":[0,{"x":"found"}]}}"#).unwrap();
        let found = |pointer| json.at_pointer(pointer).and_then(Json::text);
        assert_eq!(found("/a~1b/~0/1/x"), Some("found"));
        assert_eq!(found("/a~1b/~0/2/x"), None);
        assert_eq!(found("a"), None);
        assert_eq!(json.at_pointer(""), Some(&json));
    }
}
