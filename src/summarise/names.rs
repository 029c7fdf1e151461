//! The names of a reconcile's resources, each as a small number.
//!
//! Invariant: bounded. Past the limits no new name gets a number, so that a name either has the
//! same number in all states of a reconcile or has none in any.

use std::collections::HashMap;

use super::{digest::hash, json::cut, room::Room};
use crate::line::{MAX_LIST_BYTES, MAX_NAMES, MAX_TEXT_BYTES};

/// The largest composites known have a few thousand resources.
pub(super) const MAX_NUMBERED: usize = 16 * 1024;
const MAX_BYTES: usize = 1024 * 1024;

/// A name's place.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct NameId(u32);

impl NameId {
    pub(super) fn place(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// All names seen so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: Vec<String>,
    bytes: usize,
    is_full: bool,
    /// By hash: 64 bits tell a few thousand names apart.
    ids: HashMap<u64, NameId>,
}

impl Names {
    /// The number of a name, and its hash; `None` if there are too many.
    pub(super) fn number(&mut self, name: &str) -> Option<(NameId, u64)> {
        let hash = hash(name);
        if let Some(id) = self.ids.get(&hash) {
            return Some((*id, hash));
        }
        let text = cut(name, MAX_TEXT_BYTES);
        self.is_full |= self.texts.len() >= MAX_NUMBERED || self.bytes + text.len() > MAX_BYTES;
        if self.is_full {
            return None;
        }
        let id = NameId(u32::try_from(self.texts.len()).ok()?);
        self.bytes += text.len();
        self.texts.push(text.to_owned());
        self.ids.insert(hash, id);
        Some((id, hash))
    }

    pub(super) fn text(&self, id: NameId) -> &str {
        self.texts.get(id.place()).map_or("", String::as_str)
    }

    /// All of them.
    pub(super) fn ids(&self) -> impl Iterator<Item = NameId> {
        (0_u32..).map(NameId).take(self.texts.len())
    }

    /// These names sorted and cut at [`MAX_NAMES`], at [`MAX_LIST_BYTES`] or where there is no more
    /// room, and how many there are.
    pub(super) fn list(&self, ids: &[NameId], room: &mut Room) -> (Vec<String>, u64) {
        let mut names: Vec<_> = ids.iter().map(|id| self.text(*id)).collect();
        names.sort_unstable();
        names.truncate(MAX_NAMES);
        let mut of_list = Room::of(MAX_LIST_BYTES);
        let fitting = names
            .into_iter()
            .take_while(|name| of_list.take_name(name) && room.take_name(name));
        (fitting.map(str::to_owned).collect(), ids.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let mut names = Names::default();
        let [first, second] = ["b", "a"].map(|name| names.number(name).unwrap().0);
        assert_ne!(first, second);
        assert_eq!(names.number("b").unwrap().0, first);
        assert_eq!(
            names.list(&[first, second], &mut Room::of(MAX_LIST_BYTES)),
            (vec!["a".to_owned(), "b".to_owned()], 2)
        );
    }

    #[test]
    fn lists_are_cut_and_counted() {
        let mut names = Names::default();
        let ids: Vec<_> = (0..=MAX_NAMES)
            .map(|index| names.number(&format!("{index:04}")).unwrap().0)
            .collect();
        let (list, count) = names.list(&ids, &mut Room::of(MAX_LIST_BYTES));
        assert_eq!((list.len(), count), (MAX_NAMES, MAX_NAMES as u64 + 1));
        assert_eq!(list[0], "0000");
    }

    #[test]
    fn long_names_are_cut_sooner_and_counted() {
        let mut names = Names::default();
        let long = "x".repeat(MAX_TEXT_BYTES);
        let ids: Vec<_> = (0..MAX_NAMES)
            .map(|index| names.number(&format!("{index:04}{long}")).unwrap().0)
            .collect();
        let (list, count) = names.list(&ids, &mut Room::of(usize::MAX));
        assert_eq!(count, MAX_NAMES as u64);
        let bytes: usize = list.iter().map(String::len).sum();
        assert!(
            (MAX_LIST_BYTES / 2..=MAX_LIST_BYTES).contains(&bytes),
            "{bytes}"
        );
        let (list, count) = names.list(&ids, &mut Room::of(2 * MAX_TEXT_BYTES));
        assert_eq!((list.len(), count), (1, MAX_NAMES as u64));
    }

    #[test]
    fn once_full_no_new_name_gets_a_number() {
        let mut names = Names::default();
        let long = "é".repeat(MAX_TEXT_BYTES);
        let numbered = (0..MAX_NUMBERED)
            .take_while(|index| names.number(&format!("{index}{long}")).is_some())
            .count();
        assert!(numbered >= MAX_BYTES / MAX_TEXT_BYTES);
        assert!(names.bytes <= MAX_BYTES);
        assert_eq!(names.number("short"), None);
        assert!(names.number(&format!("0{long}")).is_some());
    }

    #[test]
    fn there_is_a_limit_to_short_names_too() {
        let mut names = Names::default();
        let numbered =
            (0..2 * MAX_NUMBERED).filter(|index| names.number(&index.to_string()).is_some());
        assert_eq!(numbered.count(), MAX_NUMBERED);
    }
}
