//! What stands at a path, as people write it: a JSON pointer, or `spec.rules[2].ports`.
//!
//! Invariant: every path that [`super::Path`] shows leads where it came from. Beyond it, names
//! with dots need no quotes (`metadata.annotations.example.org/name`), and an item of a list may be
//! a name of the path (`rules.2`).

use super::Json;

impl Json<'_> {
    /// A path that begins with a slash is a JSON pointer; an empty one, or a dot, is the whole.
    pub fn at_path(&self, path: &str) -> Option<&Self> {
        if path.starts_with('/') {
            return self.at_pointer(path);
        }
        self.at_way(path.strip_prefix('.').unwrap_or(path))
    }

    fn at_way(&self, way: &str) -> Option<&Self> {
        if way.is_empty() {
            return Some(self);
        }
        if let Some(bracket) = way.strip_prefix('[') {
            let (inside, behind) = split_bracket(bracket)?;
            return self.at_bracket(inside)?.at_way(next(behind)?);
        }
        if let Self::List(items) = self {
            let (place, behind) = way.split_at(way.find(['.', '[']).unwrap_or(way.len()));
            let item = items.get(place.parse::<usize>().ok()?)?;
            return item.at_way(next(behind)?);
        }
        // The shortest name that leads somewhere: one with dots in it is only meant if no other is.
        let members = self.members()?.iter();
        let mut fitting = members.filter_map(|(name, value)| {
            let behind = way.strip_prefix(name.as_ref())?;
            value.at_way(next(behind)?)
        });
        fitting.next()
    }

    fn at_bracket(&self, inside: &str) -> Option<&Self> {
        if inside.starts_with('"') {
            let name: String = serde_json::from_str(inside).ok()?;
            return self.member(&name);
        }
        if let Some((key, value)) = inside.split_once('=') {
            let value = if value.starts_with('"') {
                serde_json::from_str(value).ok()?
            } else {
                value.to_owned()
            };
            let is_it = |item: &&Self| item.member(key).and_then(Self::text) == Some(&value);
            return self.items()?.iter().find(is_it);
        }
        self.items()?.get(inside.parse::<usize>().ok()?)
    }
}

/// What comes behind a name or a bracket.
fn next(behind: &str) -> Option<&str> {
    match behind.strip_prefix('.') {
        Some(way) => Some(way).filter(|way| !way.is_empty()),
        None => Some(behind).filter(|way| way.is_empty() || way.starts_with('[')),
    }
}

/// What stands in a bracket, and behind it; a bracket in quotes is none.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (place, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ']' if !is_quoted => return Some((text.get(..place)?, text.get(place + 1..)?)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Path, diff};

    #[test]
    fn people_write_paths_in_many_ways() {
        let text = r#"{"spec":{"rules":[{"ports":[80]},{"ports":[443]}],"a":{"b":1},"a.b":{"c":2}},
            "metadata":{"annotations":{"example.org/name":"x","odd]\"":"y"}},
            "conditions":[{"type":"Ready","status":"True"}]}"#;
        let json = Json::parse(text).unwrap();
        let at = |path| {
            json.at_path(path)
                .map(|found| serde_json::to_string(found).unwrap())
        };
        for (path, expected) in [
            ("spec.rules[1].ports[0]", "443"),
            ("spec.rules.1.ports", "[443]"),
            (".spec.a.b", "1"),
            ("spec.a.b.c", "2"),
            ("/spec/rules/0/ports/0", "80"),
            ("metadata.annotations.example.org/name", "\"x\""),
            (r#"metadata.annotations["odd]\""]"#, "\"y\""),
            ("conditions[type=Ready].status", "\"True\""),
        ] {
            assert_eq!(at(path).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(json.at_path(""), Some(&json));
        for wrong in [
            "spec.",
            "specs",
            "spec.rules[2]",
            "spec[",
            "spec.rules[x]",
            "spec..a",
        ] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_path_that_is_shown_leads_back() {
        let text = r#"{"a.b":{"c":1},"":[{"name":"x]=\"y","v":2}],"d":[[3]],"é f":4}"#;
        let json = Json::parse(text).unwrap();
        let other =
            Json::parse(r#"{"a.b":{"c":0},"":[{"name":"x]=\"y","v":0}],"d":[[0]],"é f":0}"#);
        let other = other.unwrap();
        let changes = diff(&other, &json);
        assert_eq!(changes.len(), 4);
        for change in changes {
            let path: &Path<'_> = &change.path;
            assert_eq!(json.at_path(&path.to_string()), change.after, "{path}");
        }
    }
}
