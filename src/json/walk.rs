//! A walk through a JSON text that comes piece by piece, for texts that are too large to be held.
//!
//! A [`Guide`] says at each value that the walk comes to whether to go into it, to copy it or to
//! step over it. Invariant: memory holds the way to where the walk is and one name, of which no more
//! than [`MAX_NAME_BYTES`] are kept. What is copied is the very text that came. Only as much is
//! checked as is needed to find one's way: a text that is no JSON may be walked through.

use memchr::memchr2;

/// Of a name on the way; one that is longer can't be asked for in an address.
const MAX_NAME_BYTES: usize = 4096;
/// Payloads are nested 128 levels deep at most.
const MAX_DEPTH: usize = 256;

/// One step on the way to a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    Member(String),
    Item(usize),
}

/// What to do with a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Go into it; a value that is no container is stepped over.
    Enter,
    Copy,
    StepOver,
}

/// Decides where a walk leads.
pub trait Guide {
    type Error;

    /// A value begins, at the end of this way, with this byte.
    fn meet(&mut self, way: &[Step], first: u8) -> Result<Interest, Self::Error>;

    /// A piece of a value that is copied.
    fn copy(&mut self, piece: &[u8]) -> Result<(), Self::Error>;

    /// The value at the end of this way is over; it had so many bytes.
    fn leave(&mut self, way: &[Step], bytes: u64) -> Result<(), Self::Error>;
}

/// Why a walk ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum WalkError<E> {
    /// The text is no JSON, is nested too deeply, or ends too early.
    #[error("the text is not valid JSON")]
    Malformed,
    #[error(transparent)]
    Guide(E),
}

impl<E> From<E> for WalkError<E> {
    fn from(error: E) -> Self {
        Self::Guide(error)
    }
}

/// A container that the walk went into.
#[derive(Clone, Copy, Debug)]
struct Frame {
    is_object: bool,
    begun: u64,
    items: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    /// Before a value.
    Value,
    /// Before a name, or the end of an object without members.
    Name,
    InName {
        is_escaped: bool,
    },
    Colon,
    /// Before a value, or the end of a list without items.
    Item,
    /// Within a value that is copied or stepped over.
    Within {
        begun: u64,
        is_copied: bool,
        depth: usize,
        is_string: bool,
        is_escaped: bool,
    },
    /// Within a number or a word.
    Word {
        begun: u64,
        is_copied: bool,
    },
    /// Behind a value.
    Comma,
    /// Behind the outermost one.
    End,
}

/// A walk under way.
#[derive(Debug)]
pub struct Walk {
    at: At,
    frames: Vec<Frame>,
    way: Vec<Step>,
    /// The name that is read, as it is written.
    name: Vec<u8>,
    /// Of the piece that comes next.
    offset: u64,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            at: At::Value,
            frames: Vec::new(),
            way: Vec::new(),
            name: Vec::new(),
            offset: 0,
        }
    }
}

impl Walk {
    /// Goes on through the next piece.
    pub fn go_on<G: Guide>(
        &mut self,
        piece: &[u8],
        guide: &mut G,
    ) -> Result<(), WalkError<G::Error>> {
        let mut rest = piece;
        while !rest.is_empty() {
            let taken = self.take(rest, guide)?;
            self.offset += taken as u64;
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// The text is over.
    pub fn finish<G: Guide>(mut self, guide: &mut G) -> Result<(), WalkError<G::Error>> {
        // A number that is the whole text ends with it.
        if let At::Word { begun, .. } = self.at
            && self.frames.is_empty()
        {
            self.leave(begun, guide)?;
        }
        match self.at {
            At::End => Ok(()),
            _ => Err(WalkError::Malformed),
        }
    }

    /// Takes at least one byte; gives how many.
    fn take<G: Guide>(&mut self, rest: &[u8], guide: &mut G) -> Result<usize, WalkError<G::Error>> {
        let Some(byte) = rest.first().copied() else {
            return Ok(0);
        };
        match self.at {
            At::Within { .. } => self.take_within(rest, guide),
            At::Word { begun, is_copied } => {
                let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']') || is_blank(*byte);
                let end = rest.iter().position(is_end);
                let taken = end.unwrap_or(rest.len());
                if is_copied {
                    guide.copy(rest.get(..taken).unwrap_or_default())?;
                }
                if end.is_some() {
                    self.offset += taken as u64;
                    self.leave(begun, guide)?;
                    self.offset -= taken as u64;
                }
                // NOTE: nothing is taken if what ends it comes first; the state is another then.
                Ok(taken)
            }
            At::InName { .. } => Ok(self.take_name(rest)),
            _ if is_blank(byte) => {
                let blanks = rest.iter().position(|byte| !is_blank(*byte));
                Ok(blanks.unwrap_or(rest.len()))
            }
            At::Value => self.meet(byte, guide).map(|()| 1),
            At::Item if byte == b']' => self.close(guide).map(|()| 1),
            At::Item => {
                self.begin_item();
                self.meet(byte, guide).map(|()| 1)
            }
            At::Name if byte == b'"' => {
                self.name.clear();
                self.at = At::InName { is_escaped: false };
                Ok(1)
            }
            At::Name if byte == b'}' => self.close(guide).map(|()| 1),
            At::Colon if byte == b':' => {
                self.at = At::Value;
                Ok(1)
            }
            At::Comma => {
                let is_object = self.frames.last().is_some_and(|frame| frame.is_object);
                match byte {
                    b',' if is_object => self.at = At::Name,
                    b',' => {
                        self.begin_item();
                        self.at = At::Value;
                    }
                    b'}' if is_object => self.close(guide)?,
                    b']' if !is_object => self.close(guide)?,
                    _ => return Err(WalkError::Malformed),
                }
                Ok(1)
            }
            At::Name | At::Colon | At::End => Err(WalkError::Malformed),
        }
    }

    fn begin_item(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            self.way.push(Step::Item(frame.items));
            frame.items += 1;
        }
    }

    /// A value begins with this byte.
    fn meet<G: Guide>(&mut self, first: u8, guide: &mut G) -> Result<(), WalkError<G::Error>> {
        let interest = guide.meet(&self.way, first)?;
        let begun = self.offset;
        let is_container = matches!(first, b'{' | b'[');
        if is_container && interest == Interest::Enter {
            if self.frames.len() >= MAX_DEPTH {
                return Err(WalkError::Malformed);
            }
            let is_object = first == b'{';
            self.frames.push(Frame {
                is_object,
                begun,
                items: 0,
            });
            self.at = if is_object { At::Name } else { At::Item };
            return Ok(());
        }
        let is_copied = interest == Interest::Copy;
        if is_copied {
            guide.copy(&[first])?;
        }
        self.at = match first {
            b'{' | b'[' | b'"' => At::Within {
                begun,
                is_copied,
                depth: usize::from(is_container),
                is_string: first == b'"',
                is_escaped: false,
            },
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => At::Word { begun, is_copied },
            _ => return Err(WalkError::Malformed),
        };
        Ok(())
    }

    /// Goes on within a string or a container that the walk does not go into.
    fn take_within<G: Guide>(
        &mut self,
        rest: &[u8],
        guide: &mut G,
    ) -> Result<usize, WalkError<G::Error>> {
        let At::Within {
            begun,
            is_copied,
            mut depth,
            mut is_string,
            mut is_escaped,
        } = self.at
        else {
            return Ok(0);
        };
        let mut at = 0;
        let mut is_over = false;
        while !is_over && at < rest.len() {
            if is_escaped {
                is_escaped = false;
                at += 1;
            } else if is_string {
                let left = rest.get(at..).unwrap_or_default();
                let Some(hit) = memchr2(b'"', b'\\', left) else {
                    at = rest.len();
                    break;
                };
                at += hit + 1;
                is_escaped = left.get(hit) == Some(&b'\\');
                is_string = is_escaped;
                is_over = !is_string && depth == 0;
            } else {
                match rest.get(at) {
                    Some(b'"') => is_string = true,
                    Some(b'{' | b'[') => depth += 1,
                    Some(b'}' | b']') => {
                        depth -= 1;
                        is_over = depth == 0;
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        if is_copied {
            guide.copy(rest.get(..at).unwrap_or_default())?;
        }
        if is_over {
            self.offset += at as u64;
            self.leave(begun, guide)?;
            self.offset -= at as u64;
        } else {
            self.at = At::Within {
                begun,
                is_copied,
                depth,
                is_string,
                is_escaped,
            };
        }
        Ok(at)
    }

    fn take_name(&mut self, rest: &[u8]) -> usize {
        let At::InName { is_escaped } = self.at else {
            return 0;
        };
        if is_escaped {
            self.keep_name(rest.get(..1).unwrap_or_default());
            self.at = At::InName { is_escaped: false };
            return 1;
        }
        let Some(hit) = memchr2(b'"', b'\\', rest) else {
            self.keep_name(rest);
            return rest.len();
        };
        if rest.get(hit) == Some(&b'\\') {
            self.keep_name(rest.get(..=hit).unwrap_or_default());
            self.at = At::InName { is_escaped: true };
        } else {
            self.keep_name(rest.get(..hit).unwrap_or_default());
            let name = self.read_name();
            self.way.push(Step::Member(name));
            self.at = At::Colon;
        }
        hit + 1
    }

    fn keep_name(&mut self, bytes: &[u8]) {
        let room = MAX_NAME_BYTES.saturating_sub(self.name.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.name.extend_from_slice(kept);
    }

    /// What the name says; one that was cut, or is no text, says what can be made of it.
    fn read_name(&self) -> String {
        let text = String::from_utf8_lossy(&self.name);
        if !text.contains('\\') {
            return text.into_owned();
        }
        let read = serde_json::from_str(&format!("\"{text}\""));
        read.unwrap_or_else(|_| text.into_owned())
    }

    /// A container is over.
    fn close<G: Guide>(&mut self, guide: &mut G) -> Result<(), WalkError<G::Error>> {
        let frame = self.frames.pop().ok_or(WalkError::Malformed)?;
        self.offset += 1;
        self.leave(frame.begun, guide)?;
        self.offset -= 1;
        Ok(())
    }

    /// A value is over, just before the offset.
    fn leave<G: Guide>(&mut self, begun: u64, guide: &mut G) -> Result<(), WalkError<G::Error>> {
        guide.leave(&self.way, self.offset - begun)?;
        self.way.pop();
        self.at = if self.frames.is_empty() {
            At::End
        } else {
            At::Comma
        };
        Ok(())
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Copies what stands at one pointer, and notes what it met.
    #[derive(Default)]
    struct To {
        pointer: Vec<String>,
        found: Option<Vec<u8>>,
        left: Vec<(String, u64)>,
    }

    fn pointer_of(way: &[Step]) -> Vec<String> {
        let name = |step: &Step| match step {
            Step::Member(name) => name.clone(),
            Step::Item(place) => place.to_string(),
        };
        way.iter().map(name).collect()
    }

    impl Guide for To {
        type Error = Infallible;

        fn meet(&mut self, way: &[Step], _: u8) -> Result<Interest, Infallible> {
            let way = pointer_of(way);
            if way == self.pointer {
                self.found = Some(Vec::new());
                return Ok(Interest::Copy);
            }
            let is_on_the_way = self.pointer.starts_with(&way);
            Ok(if is_on_the_way {
                Interest::Enter
            } else {
                Interest::StepOver
            })
        }

        fn copy(&mut self, piece: &[u8]) -> Result<(), Infallible> {
            self.found.as_mut().unwrap().extend_from_slice(piece);
            Ok(())
        }

        fn leave(&mut self, way: &[Step], bytes: u64) -> Result<(), Infallible> {
            self.left.push((pointer_of(way).join("/"), bytes));
            Ok(())
        }
    }

    fn walk(text: &str, pointer: &[&str], pieces: usize) -> Option<To> {
        let mut guide = To {
            pointer: pointer.iter().map(|&name| name.to_owned()).collect(),
            ..To::default()
        };
        let mut walk = Walk::default();
        for piece in text.as_bytes().chunks(pieces) {
            walk.go_on(piece, &mut guide).ok()?;
        }
        walk.finish(&mut guide).ok()?;
        Some(guide)
    }

    fn found(text: &str, pointer: &[&str]) -> Option<String> {
        let whole = walk(text, pointer, text.len()).unwrap().found;
        for pieces in 1..7 {
            assert_eq!(walk(text, pointer, pieces).unwrap().found, whole);
        }
        whole.map(|found| String::from_utf8(found).unwrap())
    }

    #[test]
    fn what_is_copied_is_the_very_text() {
        let text = r#" {"a" : [ 1, {"b\"]": "}{ \" ]" }, -2.5e3 ],
            "é\u0041": {"x": [ [ ] , {} ] , "y":null} , "": true } "#;
        let at = |pointer: &[&str]| found(text, pointer);
        assert_eq!(at(&["a", "0"]).as_deref(), Some("1"));
        assert_eq!(at(&["a", "1"]).as_deref(), Some(r#"{"b\"]": "}{ \" ]" }"#));
        assert_eq!(at(&["a", "1", "b\"]"]).as_deref(), Some(r#""}{ \" ]""#));
        assert_eq!(at(&["a", "2"]).as_deref(), Some("-2.5e3"));
        assert_eq!(at(&["éA", "x"]).as_deref(), Some("[ [ ] , {} ]"));
        assert_eq!(at(&["éA", "y"]).as_deref(), Some("null"));
        assert_eq!(at(&[""]).as_deref(), Some("true"));
        assert_eq!(at(&["a", "3"]), None);
        assert_eq!(at(&["b"]), None);
        assert_eq!(found("7", &[]).as_deref(), Some("7"));
    }

    #[test]
    fn what_is_left_is_told_with_its_size() {
        let guide = walk(r#"{"a":[1, 22],"b":"xyz"}"#, &["a", "9"], 3).unwrap();
        let left: Vec<_> = guide
            .left
            .iter()
            .map(|(way, bytes)| (way.as_str(), *bytes))
            .collect();
        assert_eq!(left, [("a/0", 1), ("a/1", 2), ("a", 7), ("b", 5), ("", 23)]);
    }

    #[test]
    fn a_name_of_any_length_takes_a_bounded_amount() {
        let long = "x".repeat(3 * MAX_NAME_BYTES);
        let text = format!(r#"{{"{long}":1,"b":2}}"#);
        let mut guide = To {
            pointer: vec!["b".to_owned()],
            ..To::default()
        };
        let mut walk = Walk::default();
        walk.go_on(text.as_bytes(), &mut guide).unwrap();
        assert!(walk.name.capacity() <= 2 * MAX_NAME_BYTES);
        assert_eq!(guide.found.as_deref(), Some(&b"2"[..]));
    }

    #[test]
    fn what_is_no_json_ends_the_walk() {
        for text in [
            "",
            "{",
            "[1",
            r#"{"a" 1}"#,
            r#"{"a":1 "b":2}"#,
            "{,}",
            "[1}",
            "x",
            "1 2",
            "{}{}",
        ] {
            assert!(walk(text, &["a", "0"], 2).is_none(), "{text}");
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        let mut pointer = vec!["0"; MAX_DEPTH + 2];
        assert!(walk(&deep, &pointer, 8).is_none());
        pointer.truncate(1);
        assert!(walk(&format!("{deep}{}", "]".repeat(MAX_DEPTH + 1)), &pointer, 8).is_some());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,3}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The pointers of all values below this one.
    fn all_ways(value: &Value, way: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        found.push(way.clone());
        let children: Vec<(String, &Value)> = match value {
            Value::Object(members) => members.iter().map(|(k, v)| (k.clone(), v)).collect(),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(n, v)| (n.to_string(), v))
                .collect(),
            _ => Vec::new(),
        };
        for (name, child) in children {
            way.push(name);
            all_ways(child, way, found);
            way.pop();
        }
    }

    proptest! {
        #[test]
        fn every_value_is_found_where_it_stands(value in any_json(), pieces in 1_usize..9) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            let mut ways = Vec::new();
            all_ways(&value, &mut Vec::new(), &mut ways);
            for way in ways {
                let names: Vec<_> = way.iter().map(String::as_str).collect();
                let guide = walk(&text, &names, pieces).unwrap();
                let found: Value = serde_json::from_slice(&guide.found.unwrap()).unwrap();
                let mut expected = &value;
                for name in &way {
                    expected = match expected {
                        Value::Array(items) => &items[name.parse::<usize>().unwrap()],
                        other => &other[name],
                    };
                }
                prop_assert_eq!(&found, expected);
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, pieces in 1_usize..9) {
            let mut guide = To { pointer: vec!["a".to_owned()], ..To::default() };
            let mut walk = Walk::default();
            for piece in bytes.chunks(pieces) {
                if walk.go_on(piece, &mut guide).is_err() {
                    break;
                }
            }
        }
    }
}
