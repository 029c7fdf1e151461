//! Looks for a word in a tree: in names and in values. Pure.
//!
//! Invariant: what is found is bounded, whatever the tree holds, and so is what looking takes.

use super::address::below;
use crate::{
    json::{Json, Path, Segment},
    pace::breathe,
    text::cut,
};

/// More are not read by anybody.
const MOST: usize = 200;
/// Of a value that is shown.
const BYTES: usize = 160;
/// Before the word, where it stands far back in a text.
const BEFORE: usize = 40;
/// Of a path that is shown.
const PATH_BYTES: usize = 512;
/// A pointer that is longer has no page: there is a limit to addresses.
const POINTER_BYTES: usize = 2048;
/// Of a text that is looked through at once: its copy in lower case.
const WINDOW_BYTES: usize = 64 * 1024;

/// A place where the word stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Hit {
    /// As people write it.
    pub(super) path: String,
    /// From the outermost value; `None` if it is too long for an address.
    pub(super) pointer: Option<String>,
    pub(super) value: String,
}

/// Where a word stands, in the order of the tree, in upper or lower case; and whether there is
/// more.
pub(super) fn find_word(value: &Json<'_>, word: &str) -> (Vec<Hit>, bool) {
    let mut search = Search {
        word: word.to_lowercase(),
        path: Vec::new(),
        hits: Vec::new(),
        has_more: false,
    };
    search.look(value, false);
    (search.hits, search.has_more)
}

struct Search<'j> {
    word: String,
    path: Vec<Segment<'j>>,
    hits: Vec<Hit>,
    has_more: bool,
}

impl<'j> Search<'j> {
    fn look(&mut self, value: &'j Json<'j>, is_named: bool) {
        let found = match value {
            Json::Text(text) => self.excerpt(text),
            Json::Number(number) => self.excerpt(&number.to_string()),
            Json::Bool(word) => self.excerpt(if *word { "true" } else { "false" }),
            Json::Null | Json::List(_) | Json::Object(_) => None,
        };
        match (found, value) {
            (Some(found), _) => self.note(found),
            (None, Json::Text(text)) if is_named => self.note(cut(text, BYTES).into_owned()),
            (None, _) if is_named => self.note(String::new()),
            _ => {}
        }
        match value {
            Json::Object(members) => {
                for (name, member) in members {
                    breathe();
                    let is_named = self.is_in(name);
                    self.step(Segment::Member(name.clone()), member, is_named);
                }
            }
            Json::List(items) => {
                for (place, item) in items.iter().enumerate() {
                    self.step(Segment::Item(place), item, false);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, segment: Segment<'j>, value: &'j Json<'j>, is_named: bool) {
        if self.has_more {
            return;
        }
        self.path.push(segment);
        self.look(value, is_named);
        self.path.pop();
    }

    fn is_in(&self, text: &str) -> bool {
        self.find_in(text).is_some()
    }

    /// About where the word begins.
    fn find_in(&self, text: &str) -> Option<usize> {
        // A window begins so far before the end of the last that no word falls in between.
        let overlap = 4 * self.word.len();
        let mut begin = 0;
        loop {
            let end = text.floor_char_boundary(begin + WINDOW_BYTES.max(2 * overlap));
            let window = text.get(begin..end).unwrap_or_default();
            if let Some(at) = window.to_lowercase().find(&self.word) {
                return Some(begin + at);
            }
            if end >= text.len() {
                return None;
            }
            begin = text.floor_char_boundary(end - overlap);
        }
    }

    /// What stands around the word.
    fn excerpt(&self, text: &str) -> Option<String> {
        let at = self.find_in(text)?;
        // Lower case may have other lengths: what matters is a border of a character nearby.
        let from = text.floor_char_boundary(at.saturating_sub(BEFORE));
        let front = if from > 0 { "…" } else { "" };
        let rest = text.get(from..).unwrap_or_default();
        Some(format!("{front}{}", cut(rest, BYTES)))
    }

    fn note(&mut self, value: String) {
        if self.hits.len() == MOST {
            self.has_more = true;
            return;
        }
        let path = Path(self.path.clone());
        let pointer = path.0.iter().try_fold(String::new(), |pointer, segment| {
            let pointer = match segment {
                Segment::Member(name) | Segment::Named(_, name) if name.len() > POINTER_BYTES => {
                    return None;
                }
                Segment::Member(name) | Segment::Named(_, name) => below(&pointer, name),
                Segment::Item(place) => below(&pointer, &place.to_string()),
            };
            (pointer.len() <= POINTER_BYTES).then_some(pointer)
        });
        self.hits.push(Hit {
            path: cut(&path.to_string(), PATH_BYTES).into_owned(),
            pointer,
            value,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_found() {
        let json =
            Json::parse(r#"{"a/b":[{"Needle":{"x":1}},"hay NEEDLE hay"],"c":true}"#).unwrap();
        let (hits, has_more) = find_word(&json, "needle");
        let told: Vec<_> = hits
            .iter()
            .map(|hit| (hit.path.as_str(), hit.pointer.as_deref().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                (r#"["a/b"][0].Needle"#, "/a~1b/0/Needle"),
                (r#"["a/b"][1]"#, "/a~1b/1")
            ]
        );
        assert_eq!(hits[1].value, "hay NEEDLE hay");
        assert!(!has_more);
        assert_eq!(find_word(&json, "TRUE").0.len(), 1);
    }

    #[test]
    fn hits_are_bounded() {
        let json = Json::parse(&format!("[{}]", vec!["\"x\""; 1_000].join(","))).map(|json| {
            let (hits, has_more) = find_word(&json, "x");
            (hits.len(), has_more)
        });
        assert_eq!(json.unwrap(), (MOST, true));
        let long = format!("\"{}needle{}\"", "é".repeat(1 << 20), "z".repeat(1 << 20));
        let json = Json::parse(&long).unwrap();
        let (hits, _) = find_word(&json, "needle");
        assert!(hits[0].value.contains("needle") && hits[0].value.len() < 400);
    }

    #[test]
    fn a_word_is_found_wherever_it_stands_in_a_long_text() {
        for before in (WINDOW_BYTES - 40..WINDOW_BYTES + 8).step_by(3) {
            let text = format!(
                "\"{}NEEDLE{}\"",
                "é".repeat(before / 2),
                "z".repeat(WINDOW_BYTES)
            );
            let json = Json::parse(&text).unwrap();
            assert_eq!(find_word(&json, "needle").0.len(), 1, "{before}");
        }
        assert!(
            find_word(&Json::Text("x".repeat(WINDOW_BYTES * 3).into()), "y")
                .0
                .is_empty()
        );
    }

    #[test]
    fn long_names_make_short_hits() {
        let name = "n".repeat(1 << 20);
        let items = vec!["\"x\""; 1_000].join(",");
        let text = format!(r#"{{"{name}":[{items}]}}"#);
        let json = Json::parse(&text).unwrap();
        let (hits, _) = find_word(&json, "x");
        assert!(
            hits.iter()
                .all(|hit| hit.pointer.is_none() && hit.path.len() <= PATH_BYTES)
        );
    }
}
