//! Two states held against each other, resource by resource.
//!
//! Invariant: resources stand in the order of their names, the composite first; one that is equal
//! is not told.

use std::{borrow::Cow, cmp::Ordering};

use super::state::{Resource, State};
use crate::json::{Change, Path, Segment, diff_up_to};

/// Of one resource that is explained to people: nobody reads more.
pub(super) const MAX_FIELDS: usize = 10_000;

/// How a resource differs.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceChange<'s> {
    /// Empty for the composite.
    pub name: &'s str,
    pub deed: Deed,
    pub before: Option<&'s Resource<'s>>,
    pub after: Option<&'s Resource<'s>>,
    /// Field by field, the first of them; for one that is only on one side, nothing.
    pub fields: Vec<Change<'s>>,
    /// Of all fields.
    pub field_count: usize,
}

/// What became of a resource.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Deed {
    Added,
    Changed,
    Removed,
}

impl ResourceChange<'_> {
    /// What a function says about readiness, before and after, if that differs.
    pub fn readiness(&self) -> Option<(Option<bool>, Option<bool>)> {
        let [before, after] =
            [self.before, self.after].map(|side| side.and_then(|side| side.ready));
        (before != after).then_some((before, after))
    }
}

/// Everything that differs.
pub fn compare<'s>(before: &'s State<'s>, after: &'s State<'s>) -> Vec<ResourceChange<'s>> {
    compare_up_to(before, after, usize::MAX)
}

/// Everything that differs; of all resources together so many fields are told, the others counted.
pub fn compare_up_to<'s>(
    before: &'s State<'s>,
    after: &'s State<'s>,
    mut most: usize,
) -> Vec<ResourceChange<'s>> {
    let mut changes: Vec<ResourceChange<'s>> = Vec::new();
    let mut compare = |name, before, after| {
        let change = compare_resource_up_to(name, before, after, most);
        most -= change.as_ref().map_or(0, |change| change.fields.len());
        changes.extend(change);
    };
    compare("", before.composite.as_ref(), after.composite.as_ref());
    let mut old = before.resources.iter().peekable();
    let mut new = after.resources.iter().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((old, _)), Some((new, _))) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        if let Some((name, _)) = before.or(after) {
            let [before, after] = [before, after].map(|side| side.map(|(_, resource)| resource));
            compare(name, before, after);
        }
    }
    changes
}

/// How one resource differs, if it does.
pub fn compare_resource<'s>(
    name: &'s str,
    before: Option<&'s Resource<'s>>,
    after: Option<&'s Resource<'s>>,
) -> Option<ResourceChange<'s>> {
    compare_resource_up_to(name, before, after, usize::MAX)
}

/// The same, of which so many fields are told.
pub(super) fn compare_resource_up_to<'s>(
    name: &'s str,
    before: Option<&'s Resource<'s>>,
    after: Option<&'s Resource<'s>>,
    most: usize,
) -> Option<ResourceChange<'s>> {
    let none = (Vec::new(), 0);
    let (deed, (fields, field_count)) = match (before, after) {
        (None, None) => return None,
        (None, Some(_)) => (Deed::Added, none),
        (Some(_), None) => (Deed::Removed, none),
        (Some(old), Some(new)) if old == new => return None,
        (Some(old), Some(new)) => (Deed::Changed, fields_between(old, new, most)),
    };
    Some(ResourceChange {
        name,
        deed,
        before,
        after,
        fields,
        field_count,
    })
}

fn fields_between<'s>(
    old: &'s Resource<'s>,
    new: &'s Resource<'s>,
    most: usize,
) -> (Vec<Change<'s>>, usize) {
    let (mut fields, mut count) = diff_up_to(&old.body, &new.body, most);
    let has_other_details = old.details != new.details;
    count += usize::from(has_other_details);
    if has_other_details && fields.len() < most {
        fields.push(Change {
            path: Path(vec![Segment::Member(Cow::Borrowed("connectionDetails"))]),
            before: old.details.as_ref(),
            after: new.details.as_ref(),
        });
    }
    (fields, count)
}

/// Whether a field of an observed resource changes with every write, whatever was written.
pub fn is_bookkeeping(path: &Path<'_>) -> bool {
    let [Segment::Member(metadata), Segment::Member(field), ..] = path.0.as_slice() else {
        return false;
    };
    metadata == "metadata"
        && ["managedFields", "resourceVersion", "generation"].contains(&field.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_told_with_their_fields() {
        let before = r#"{"composite":{"resource":{"status":{"a":1}}},"resources":{
            "gone":{"resource":{}},"same":{"resource":{"x":1}},"odd":{"resource":{"x":1,"y":2}},"late":{"resource":{}}}}"#;
        let after = r#"{"composite":{"resource":{"status":{"a":2}}},"resources":{
            "new":{"resource":{}},"same":{"resource":{"x":1}},"odd":{"resource":{"x":1,"y":3}},
            "late":{"resource":{},"ready":"READY_TRUE"}}}"#;
        let [before, after] = [before, after].map(|text| State::read(Some(text)).unwrap());
        let changes = compare(&before, &after);
        let told: Vec<_> = changes
            .iter()
            .map(|change| {
                let fields: Vec<_> = change
                    .fields
                    .iter()
                    .map(|field| field.path.to_string())
                    .collect();
                (
                    change.name,
                    change.deed,
                    fields.join(" "),
                    change.readiness(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("", Deed::Changed, "status.a".to_owned(), None),
                ("gone", Deed::Removed, String::new(), None),
                (
                    "late",
                    Deed::Changed,
                    String::new(),
                    Some((None, Some(true)))
                ),
                ("new", Deed::Added, String::new(), None),
                ("odd", Deed::Changed, "y".to_owned(), None),
            ]
        );
    }
}
