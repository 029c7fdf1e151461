//! Two states held against each other, resource by resource.
//!
//! Invariant: resources stand in the order of their names, the composite first; one that is equal
//! is not told.

use std::{borrow::Cow, cmp::Ordering};

use super::state::{Resource, State};
use crate::json::{Change, Path, Segment, diff};

/// How a resource differs.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceChange<'s> {
    /// Empty for the composite.
    pub name: &'s str,
    pub deed: Deed,
    pub before: Option<&'s Resource<'s>>,
    pub after: Option<&'s Resource<'s>>,
    /// Field by field; for one that is only on one side, nothing.
    pub fields: Vec<Change<'s>>,
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
    let composites = (before.composite.as_ref(), after.composite.as_ref());
    let mut changes = Vec::from_iter(compare_resource("", composites.0, composites.1));
    let mut old = before.resources.iter().peekable();
    let mut new = after.resources.iter().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((old, _)), Some((new, _))) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return changes,
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        if let Some((name, _)) = before.or(after) {
            let [before, after] = [before, after].map(|side| side.map(|(_, resource)| resource));
            changes.extend(compare_resource(name, before, after));
        }
    }
}

/// How one resource differs, if it does.
pub fn compare_resource<'s>(
    name: &'s str,
    before: Option<&'s Resource<'s>>,
    after: Option<&'s Resource<'s>>,
) -> Option<ResourceChange<'s>> {
    let (deed, fields) = match (before, after) {
        (None, None) => return None,
        (None, Some(_)) => (Deed::Added, Vec::new()),
        (Some(_), None) => (Deed::Removed, Vec::new()),
        (Some(old), Some(new)) if old == new => return None,
        (Some(old), Some(new)) => (Deed::Changed, fields_between(old, new)),
    };
    Some(ResourceChange {
        name,
        deed,
        before,
        after,
        fields,
    })
}

fn fields_between<'s>(old: &'s Resource<'s>, new: &'s Resource<'s>) -> Vec<Change<'s>> {
    let mut fields = diff(&old.body, &new.body);
    if old.details != new.details {
        fields.push(Change {
            path: Path(vec![Segment::Member(Cow::Borrowed("connectionDetails"))]),
            before: old.details.as_ref(),
            after: new.details.as_ref(),
        });
    }
    fields
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
