//! Where in a tree something stands, as people write it: `spec.rules[2].ports`.
//!
//! Invariant: two places never read the same.

use std::{borrow::Cow, fmt};

/// One step down a tree.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Segment<'j> {
    Member(Cow<'j, str>),
    Item(usize),
    /// The item of a list that has this value in this member.
    Named(&'static str, Cow<'j, str>),
}

/// The way from the root of a tree.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Path<'j>(pub Vec<Segment<'j>>);

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Member(name) if is_plain(name) => {
                    let dot = if depth == 0 { "" } else { "." };
                    write!(out, "{dot}{name}")?;
                }
                Segment::Member(name) => write!(out, "[{}]", quoted(name))?,
                Segment::Item(place) => write!(out, "[{place}]")?,
                Segment::Named(key, value) if is_plain(value) => write!(out, "[{key}={value}]")?,
                Segment::Named(key, value) => write!(out, "[{key}={}]", quoted(value))?,
            }
        }
        Ok(())
    }
}

/// Needs no quotes.
fn is_plain(name: &str) -> bool {
    let is_plain = |character: char| character.is_alphanumeric() || "_-$".contains(character);
    !name.is_empty() && name.chars().all(is_plain)
}

fn quoted(name: &str) -> serde_json::Value {
    serde_json::Value::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_people_write_it() {
        let member = |name: &'static str| Segment::Member(name.into());
        let path = |segments: &[Segment<'static>]| Path(segments.to_vec()).to_string();
        assert_eq!(path(&[]), "");
        assert_eq!(
            path(&[member("spec"), member("rules"), Segment::Item(2)]),
            "spec.rules[2]"
        );
        assert_eq!(
            path(&[member("metadata"), member("crossplane.io/name")]),
            r#"metadata["crossplane.io/name"]"#
        );
        assert_eq!(
            path(&[
                member("conditions"),
                Segment::Named("type", "Ready".into()),
                member("status")
            ]),
            "conditions[type=Ready].status"
        );
    }
}
