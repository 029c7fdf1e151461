//! What stands where inside an object: its payloads, the value at a pointer, what a value consists
//! of.
//!
//! Invariant: as with everything that walks through an object, memory holds what is asked for and
//! nothing else of it; what a value consists of takes the same however large the value is.

use serde::Deserialize;

use super::{Answers, OpenError, PayloadsError, excerpt::kind_of, walking::Stop};
use crate::{
    json::{Guide, Interest, Step},
    record::RecordKind,
    text::cut,
};

/// Of the name of a part.
const NAME_BYTES: usize = 256;
/// Of what an object begins with.
const HEAD_BYTES: usize = 64 * 1024;
/// Of the name of a step, and of its function.
const STEP_NAME_BYTES: u64 = 4096;
/// Steps of a reconcile; Crossplane takes 99.
const MAX_STEPS: usize = 1000;

/// A step of an object.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StepContents {
    pub name: String,
    pub function: String,
    /// How many bytes it has; `None` if there is none.
    pub request: Option<u64>,
    pub response: Option<u64>,
}

/// How a value stands in an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    Json,
    /// A payload that is no JSON.
    Text,
    /// A payload that is not even text.
    Bytes,
}

/// What an object begins with.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Head {
    v: u32,
    pub trace_id: String,
}

/// A value of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ValueAt {
    Missing,
    /// The very text that stands there.
    Json(String),
    /// A payload that is no JSON.
    Text(String),
    /// A payload that is not even text.
    Bytes(Vec<u8>),
}

/// What a value consists of.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outline {
    /// As it stands in the object.
    pub bytes: u64,
    /// Some of its members or items, from one on.
    pub parts: Vec<PartOutline>,
    /// Of its members or items, also of those that are not told.
    pub total: usize,
}

/// A member or an item.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartOutline {
    /// Its name, cut, or its place.
    pub name: String,
    /// Its name is longer.
    pub is_cut: bool,
    pub is_container: bool,
    pub bytes: u64,
}

impl Answers {
    /// What an object begins with; an error if it is no document that this program knows.
    pub async fn head(&self, key: &str) -> Result<Head, PayloadsError> {
        let mut guide = HeadGuide::default();
        self.walk(key, &mut guide).await?;
        let head = guide.finish();
        head.map_err(|source| PayloadsError::Open {
            key: key.to_owned(),
            source,
        })
    }

    /// The steps of an object, and how large their payloads are.
    pub async fn contents(&self, key: &str) -> Result<Vec<StepContents>, PayloadsError> {
        let mut guide = ContentsGuide::default();
        self.walk(key, &mut guide).await?;
        Ok(guide.steps)
    }

    /// What stands at a JSON pointer that leads to a payload or into one.
    pub async fn value_at(&self, key: &str, pointer: &str) -> Result<ValueAt, PayloadsError> {
        let Some(mut stream) = self.value_stream(key, pointer).await? else {
            return Ok(ValueAt::Missing);
        };
        let limit = self.max_bytes();
        let mut value = Vec::new();
        while let Some(piece) = stream.next().await? {
            if (value.len() + piece.len()) as u64 > limit {
                let key = key.to_owned();
                return Err(PayloadsError::TooLarge { key, limit });
            }
            value.extend_from_slice(&piece);
        }
        if stream.form() == Form::Bytes {
            return Ok(ValueAt::Bytes(value));
        }
        let text = String::from_utf8(value).map_err(|source| PayloadsError::Open {
            key: key.to_owned(),
            source: source.into(),
        })?;
        Ok(match stream.form() {
            Form::Json => ValueAt::Json(text),
            _ => ValueAt::Text(text),
        })
    }

    /// What the value at a JSON pointer consists of; `None` if nothing stands there.
    pub async fn outline(
        &self,
        key: &str,
        pointer: &str,
        from: usize,
        most: usize,
    ) -> Result<Option<Outline>, PayloadsError> {
        let Some(names) = names_of(pointer) else {
            return Ok(None);
        };
        let mut guide = OutlineGuide {
            names,
            from,
            most,
            first: 0,
            outline: Outline::default(),
            is_found: false,
        };
        self.walk(key, &mut guide).await?;
        Ok(guide.is_found.then_some(guide.outline))
    }
}

/// The names on the way that a pointer describes; `None` if it is none.
pub(super) fn names_of(pointer: &str) -> Option<Vec<String>> {
    let names = pointer.strip_prefix('/')?.split('/');
    let unescape = |name: &str| name.replace("~1", "/").replace("~0", "~");
    Some(names.map(unescape).collect())
}

/// Whether a way leads towards a place, or to it.
pub(super) fn leads_to(way: &[Step], names: &[String]) -> bool {
    way.len() <= names.len()
        && way.iter().zip(names).all(|(step, name)| match step {
            Step::Member(member) => member == name,
            Step::Item(place) => name.parse() == Ok(*place),
        })
}

/// The payload of a step in whichever form it has, where its kind is asked for.
pub(super) fn is_form_of_payload(way: &[Step], names: &[String]) -> bool {
    let ([_, Step::Item(_), Step::Member(member)], [_, _, name]) = (way, names) else {
        return false;
    };
    let above = way.get(..2).unwrap_or_default();
    let kind = kind_of(member).map(|(kind, _)| kind);
    leads_to(above, names) && kind.is_some() && kind == kind_of(name).map(|(kind, _)| kind)
}

/// Takes the members that are told first.
#[derive(Default)]
struct HeadGuide {
    /// A document of them alone, without its end.
    taken: Vec<u8>,
    count: usize,
}

impl HeadGuide {
    fn finish(mut self) -> Result<Head, OpenError> {
        if self.taken.is_empty() {
            self.taken.push(b'{');
        }
        self.taken.push(b'}');
        let head: Head = serde_json::from_slice(&self.taken)?;
        match head.v {
            1 => Ok(head),
            version => Err(OpenError::Version(version)),
        }
    }
}

impl Guide for HeadGuide {
    type Error = Stop;

    fn meet(&mut self, way: &[Step], _: u8) -> Result<Interest, Stop> {
        match way {
            [] => Ok(Interest::Enter),
            [Step::Member(name)] if matches!(name.as_str(), "v" | "trace_id") => {
                let lead = if self.count == 0 { "{" } else { "," };
                self.taken.extend(format!("{lead}\"{name}\":").bytes());
                self.count += 1;
                Ok(Interest::Copy)
            }
            _ => Ok(Interest::StepOver),
        }
    }

    fn copy(&mut self, piece: &[u8]) -> Result<(), Stop> {
        if self.taken.len() + piece.len() > HEAD_BYTES {
            return Err(Stop::TooLarge);
        }
        self.taken.extend_from_slice(piece);
        Ok(())
    }

    fn leave(&mut self, way: &[Step], _: u64) -> Result<(), Stop> {
        if way.len() == 1 && self.count == 2 {
            return Err(Stop::Done);
        }
        Ok(())
    }
}

#[derive(Default)]
struct ContentsGuide {
    steps: Vec<StepContents>,
    /// The text that is read.
    text: Vec<u8>,
    /// It does not count: null.
    is_null: bool,
}

impl Guide for ContentsGuide {
    type Error = Stop;

    fn meet(&mut self, way: &[Step], first: u8) -> Result<Interest, Stop> {
        self.is_null = first == b'n';
        Ok(match way {
            [] => Interest::Enter,
            [Step::Member(name)] if name == "steps" => Interest::Enter,
            [_, Step::Item(place)] => {
                if *place >= MAX_STEPS {
                    return Err(Stop::Done);
                }
                self.steps.push(StepContents::default());
                Interest::Enter
            }
            [_, _, Step::Member(name)] if matches!(name.as_str(), "name" | "function") => {
                self.text.clear();
                Interest::Copy
            }
            _ => Interest::StepOver,
        })
    }

    fn copy(&mut self, piece: &[u8]) -> Result<(), Stop> {
        if (self.text.len() + piece.len()) as u64 <= STEP_NAME_BYTES {
            self.text.extend_from_slice(piece);
        }
        Ok(())
    }

    fn leave(&mut self, way: &[Step], bytes: u64) -> Result<(), Stop> {
        let ([_, _, Step::Member(name)], Some(step)) = (way, self.steps.last_mut()) else {
            return Ok(());
        };
        match name.as_str() {
            "name" => step.name = serde_json::from_slice(&self.text).unwrap_or_default(),
            "function" => step.function = serde_json::from_slice(&self.text).unwrap_or_default(),
            name => match kind_of(name) {
                Some((RecordKind::Request, _)) if !self.is_null => step.request = Some(bytes),
                Some((RecordKind::Response, _)) if !self.is_null => step.response = Some(bytes),
                _ => {}
            },
        }
        Ok(())
    }
}

/// Takes out what stands at one place.
#[derive(Debug)]
pub(super) struct ValueGuide {
    names: Vec<String>,
    /// Of what was found.
    form: Option<Form>,
    found: Vec<u8>,
}

impl ValueGuide {
    pub(super) fn to(names: Vec<String>) -> Self {
        Self {
            names,
            form: None,
            found: Vec::new(),
        }
    }

    /// `None` until it is found.
    pub(super) fn form(&self) -> Option<Form> {
        self.form
    }

    /// What was found since this was asked last.
    pub(super) fn take_found(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.found)
    }
}

impl Guide for ValueGuide {
    type Error = Stop;

    fn meet(&mut self, way: &[Step], first: u8) -> Result<Interest, Stop> {
        let mut form = Form::Json;
        if is_form_of_payload(way, &self.names) {
            // In the other forms stands null.
            if first == b'n' {
                return Ok(Interest::StepOver);
            }
            if let Some(Step::Member(name)) = way.last() {
                form = match name.rsplit_once('_') {
                    Some((_, "text")) => Form::Text,
                    Some((_, "base64")) => Form::Bytes,
                    _ => Form::Json,
                };
            }
        } else if !leads_to(way, &self.names) {
            return Ok(Interest::StepOver);
        } else if way.len() < self.names.len() {
            return Ok(Interest::Enter);
        }
        self.form = Some(form);
        Ok(Interest::Copy)
    }

    fn copy(&mut self, piece: &[u8]) -> Result<(), Stop> {
        self.found.extend_from_slice(piece);
        Ok(())
    }

    fn leave(&mut self, way: &[Step], _: u64) -> Result<(), Stop> {
        if self.form.is_some() && way.len() == self.names.len() {
            return Err(Stop::Done);
        }
        Ok(())
    }
}

struct OutlineGuide {
    names: Vec<String>,
    from: usize,
    most: usize,
    /// The first byte of the part that is stepped over.
    first: u8,
    outline: Outline,
    is_found: bool,
}

impl Guide for OutlineGuide {
    type Error = Stop;

    fn meet(&mut self, way: &[Step], first: u8) -> Result<Interest, Stop> {
        self.first = first;
        let depth = self.names.len();
        if !leads_to(way.get(..depth).unwrap_or(way), &self.names) {
            return Ok(Interest::StepOver);
        }
        if way.len() == depth {
            self.is_found = true;
        }
        Ok(if way.len() <= depth {
            Interest::Enter
        } else {
            Interest::StepOver
        })
    }

    fn copy(&mut self, _: &[u8]) -> Result<(), Stop> {
        Ok(())
    }

    fn leave(&mut self, way: &[Step], bytes: u64) -> Result<(), Stop> {
        if !self.is_found {
            return Ok(());
        }
        if way.len() == self.names.len() {
            self.outline.bytes = bytes;
            return Err(Stop::Done);
        }
        let place = self.outline.total;
        self.outline.total += 1;
        if place >= self.from && self.outline.parts.len() < self.most {
            let (name, is_cut) = match way.last() {
                Some(Step::Member(name)) => {
                    (cut(name, NAME_BYTES).into_owned(), name.len() > NAME_BYTES)
                }
                Some(Step::Item(place)) => (place.to_string(), false),
                None => (String::new(), false),
            };
            self.outline.parts.push(PartOutline {
                name,
                is_cut,
                is_container: matches!(self.first, b'{' | b'['),
                bytes,
            });
        }
        Ok(())
    }
}
