//! What differs between two trees.
//!
//! A part that only one side has is one change, not as many as it has leaves. The items of a list
//! that all have a `name`, `type` or the like, each its own, are held against their namesakes, so
//! that one more at the front does not change all others; else by their place.
//!
//! Invariant: nothing is told for equal trees, and every change holds what really stands there.

use std::{cmp::Ordering, collections::HashMap};

use super::{
    Json,
    path::{Path, Segment},
};

/// What items of lists are known by, in Kubernetes.
const KEYS: [&str; 5] = ["name", "type", "key", "id", "uid"];

/// A difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<'j> {
    pub path: Path<'j>,
    /// `None`: it was not there.
    pub before: Option<&'j Json<'j>>,
    /// `None`: it is not there any more.
    pub after: Option<&'j Json<'j>>,
}

/// All differences, in the order of the tree.
pub fn diff<'j>(before: &'j Json<'j>, after: &'j Json<'j>) -> Vec<Change<'j>> {
    diff_up_to(before, after, usize::MAX).0
}

/// The first differences, and how many there are. A change may take more than what it tells of.
pub fn diff_up_to<'j>(
    before: &'j Json<'j>,
    after: &'j Json<'j>,
    most: usize,
) -> (Vec<Change<'j>>, usize) {
    let mut differ = Differ {
        path: Vec::new(),
        changes: Vec::new(),
        most,
        count: 0,
    };
    differ.compare(before, after);
    (differ.changes, differ.count)
}

struct Differ<'j> {
    path: Vec<Segment<'j>>,
    changes: Vec<Change<'j>>,
    most: usize,
    /// Of all changes.
    count: usize,
}

impl<'j> Differ<'j> {
    fn compare(&mut self, before: &'j Json<'j>, after: &'j Json<'j>) {
        match (before, after) {
            (Json::Object(old), Json::Object(new)) => self.compare_members(old, new),
            (Json::List(old), Json::List(new)) => self.compare_items(old, new),
            _ if before == after => {}
            _ => self.note(Some(before), Some(after)),
        }
    }

    fn compare_members(&mut self, old: &'j [Member<'j>], new: &'j [Member<'j>]) {
        let mut old = old.iter().peekable();
        let mut new = new.iter().peekable();
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
                let [before, after] = [before, after].map(|member| member.map(|(_, value)| value));
                self.step(Segment::Member(name.clone()), before, after);
            }
        }
    }

    fn compare_items(&mut self, old: &'j [Json<'j>], new: &'j [Json<'j>]) {
        if let Some(key) = KEYS.into_iter().find(|key| tells_apart(key, [old, new])) {
            self.compare_named(key, old, new);
            return;
        }
        for place in 0..old.len().max(new.len()) {
            self.step(Segment::Item(place), old.get(place), new.get(place));
        }
    }

    fn compare_named(&mut self, key: &'static str, old: &'j [Json<'j>], new: &'j [Json<'j>]) {
        let name = |item: &'j Json<'j>| item.member(key).and_then(Json::text).unwrap_or_default();
        let mut added: HashMap<_, _> = new.iter().map(|item| (name(item), item)).collect();
        for item in old {
            let after = added.remove(name(item));
            self.step(Segment::Named(key, name(item).into()), Some(item), after);
        }
        for item in new.iter().filter(|item| added.contains_key(name(item))) {
            self.step(Segment::Named(key, name(item).into()), None, Some(item));
        }
    }

    fn step(
        &mut self,
        segment: Segment<'j>,
        before: Option<&'j Json<'j>>,
        after: Option<&'j Json<'j>>,
    ) {
        self.path.push(segment);
        match (before, after) {
            (Some(before), Some(after)) => self.compare(before, after),
            _ => self.note(before, after),
        }
        self.path.pop();
    }

    fn note(&mut self, before: Option<&'j Json<'j>>, after: Option<&'j Json<'j>>) {
        self.count += 1;
        if self.changes.len() < self.most {
            self.changes.push(Change {
                path: Path(self.path.clone()),
                before,
                after,
            });
        }
    }
}

type Member<'j> = (std::borrow::Cow<'j, str>, Json<'j>);

/// Whether every item of these lists has this member, as a text that no other of its list has.
fn tells_apart(key: &str, lists: [&[Json<'_>]; 2]) -> bool {
    lists.iter().any(|items| !items.is_empty())
        && lists.iter().all(|items| {
            let names = items
                .iter()
                .map(|item| item.member(key).and_then(Json::text));
            let mut seen = std::collections::HashSet::with_capacity(items.len());
            names
                .into_iter()
                .all(|name| name.is_some_and(|name| seen.insert(name)))
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes(before: &str, after: &str) -> Vec<String> {
        let [before, after] = [before, after].map(|text| Json::parse(text).unwrap());
        let show = |side: Option<&Json<'_>>| {
            side.map_or_else(String::new, |json| serde_json::to_string(json).unwrap())
        };
        diff(&before, &after)
            .into_iter()
            .map(|change| {
                let [old, new] = [change.before, change.after].map(show);
                format!("{} {old}>{new}", change.path)
            })
            .collect()
    }

    #[test]
    fn fields_are_told_by_their_way() {
        assert_eq!(
            changes(
                r#"{"a":{"b":1,"c":2},"d":[1,2]}"#,
                r#"{"a":{"b":1,"c":3,"e":{"f":0}},"d":[1]}"#
            ),
            ["a.c 2>3", "a.e >{\"f\":0}", "d[1] 2>"]
        );
    }

    #[test]
    fn items_with_names_are_held_against_their_namesakes() {
        assert_eq!(
            changes(
                r#"[{"type":"Ready","v":1},{"type":"Synced","v":1}]"#,
                r#"[{"type":"New"},{"type":"Synced","v":1},{"type":"Ready","v":2}]"#
            ),
            ["[type=Ready].v 1>2", "[type=New] >{\"type\":\"New\"}"]
        );
        assert_eq!(
            changes(r#"[{"name":"a"},{"name":"a"}]"#, r#"[{"name":"a"}]"#),
            ["[1] {\"name\":\"a\"}>"],
            "names that are not unique don't count"
        );
    }

    #[test]
    fn another_type_is_one_change() {
        assert_eq!(
            changes(r#"{"a":{"b":1}}"#, r#"{"a":[1]}"#),
            ["a {\"b\":1}>[1]"]
        );
        assert_eq!(changes("{}", "null"), [" {}>null"]);
        assert_eq!(changes("[]", "[]"), Vec::<String>::new());
    }

    fn trees() -> impl Strategy<Value = Json<'static>> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            (0..3_i64).prop_map(|number| Json::Number(number.into())),
            "[ab]".prop_map(|text| Json::Text(text.into())),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::List),
                prop::collection::vec(("name|type|a|b", inner), 0..4).prop_map(|members| {
                    members
                        .into_iter()
                        .map(|(name, value)| (name.into(), value))
                        .collect()
                }),
            ]
        })
    }

    /// With the named items of lists in the order of their names, which makes no difference.
    fn ordered(json: &Json<'static>) -> Json<'static> {
        match json {
            Json::List(items) => {
                let key = KEYS
                    .into_iter()
                    .find(|key| tells_apart(key, [items, items]));
                let mut items: Vec<_> = items.iter().map(ordered).collect();
                if let Some(key) = key {
                    let name =
                        |item: &Json<'_>| item.member(key).unwrap().text().unwrap().to_owned();
                    items.sort_by_key(name);
                }
                Json::List(items)
            }
            Json::Object(members) => members
                .iter()
                .map(|(name, value)| (name.clone(), ordered(value)))
                .collect(),
            leaf => leaf.clone(),
        }
    }

    proptest! {
        #[test]
        fn equal_trees_and_only_they_have_no_differences(one in trees(), other in trees()) {
            prop_assert!(diff(&one, &one).is_empty());
            let all = diff(&one, &other);
            let (first, count) = diff_up_to(&one, &other, 2);
            prop_assert_eq!(count, all.len());
            prop_assert_eq!(&first[..], &all[..all.len().min(2)]);
            prop_assert_eq!(diff(&one, &other).is_empty(), ordered(&one) == ordered(&other));
            for change in diff(&one, &other) {
                prop_assert_ne!(change.before, change.after);
            }
        }
    }
}
