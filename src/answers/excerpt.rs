//! A part of a stored reconcile: the payloads that an answer needs, or what of them it needs, taken
//! out while the object is read.
//!
//! Invariant: memory holds what is taken, which is never more than is allowed, and nothing else of
//! the object. What is taken reads as a document of its own.

use super::walking::Stop;
use crate::{
    json::{Guide, Interest, Step},
    line::{Line, LineStep, PayloadRef},
    record::RecordKind,
};

/// What is wanted of a document.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The payloads, by the place of their step; `None` for all.
    payloads: Option<Vec<(usize, RecordKind)>>,
    part: Part,
    /// The only resource that is wanted of a state; empty for the composite.
    resource: Option<String>,
}

/// What is wanted of a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Whole,
    /// What was observed, given and returned.
    States,
    /// What was observed and returned.
    Ends,
}

impl Selection {
    pub fn everything() -> Self {
        Self::of(None, Part::Whole)
    }

    /// The states of all steps.
    pub fn states() -> Self {
        Self::of(None, Part::States)
    }

    /// What a step was asked and what it answered.
    pub fn of_step(step: &LineStep) -> Self {
        Self::of(
            Some([step.request.as_ref(), step.response.as_ref()]),
            Part::Whole,
        )
    }

    /// What a step was given and what it returned.
    pub fn states_of_step(step: &LineStep) -> Self {
        Self {
            part: Part::States,
            ..Self::of_step(step)
        }
    }

    /// What was observed at first, and what was desired in the end.
    pub fn ends(line: &Line) -> Self {
        let first = line.steps.iter().find_map(|step| step.request.as_ref());
        let last = line.steps.last().and_then(|step| step.response.as_ref());
        Self::of(Some([first, last]), Part::Ends)
    }

    /// What was observed at first.
    pub fn observed(line: &Line) -> Self {
        let first = line.steps.iter().find_map(|step| step.request.as_ref());
        Self::of(Some([first, None]), Part::Ends)
    }

    /// Of states only this resource, or the composite if the name is empty.
    #[must_use]
    pub fn of_resource(self, name: &str) -> Self {
        Self {
            resource: Some(name.to_owned()),
            ..self
        }
    }

    fn of(payloads: Option<[Option<&PayloadRef>; 2]>, part: Part) -> Self {
        let places = |payloads: [Option<&PayloadRef>; 2]| {
            let payloads = payloads.into_iter().flatten();
            payloads.filter_map(place_of).collect()
        };
        Self {
            payloads: payloads.map(places),
            part,
            resource: None,
        }
    }

    fn wants(&self, place: usize, kind: RecordKind) -> bool {
        let wanted = self.payloads.as_ref();
        wanted.is_none_or(|wanted| wanted.contains(&(place, kind)))
    }
}

impl Part {
    fn wants(self, kind: RecordKind, member: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::States => matches!(member, "observed" | "desired"),
            Self::Ends => match kind {
                RecordKind::Request => member == "observed",
                RecordKind::Response => member == "desired",
            },
        }
    }
}

fn place_of(at: &PayloadRef) -> Option<(usize, RecordKind)> {
    let (place, member) = at.pointer.strip_prefix("/steps/")?.split_once('/')?;
    Some((place.parse().ok()?, kind_of(member)?.0))
}

/// What a member of a step holds, and whether that is JSON as it came.
pub(super) fn kind_of(member: &str) -> Option<(RecordKind, bool)> {
    let (base, form) = member.split_once('_').unwrap_or((member, ""));
    let kind = match base {
        "request" => RecordKind::Request,
        "response" => RecordKind::Response,
        _ => return None,
    };
    matches!(form, "" | "text" | "base64").then_some((kind, form.is_empty()))
}

/// Takes an excerpt.
#[derive(Debug)]
pub(super) struct Excerpter<'s> {
    selection: &'s Selection,
    /// Bytes that may still be taken.
    room: u64,
    text: Vec<u8>,
    /// The containers that are open: how far in they stand, and how each is closed.
    open: Vec<(usize, u8)>,
    /// Nothing stands yet in the innermost of them.
    is_empty: bool,
    /// Payloads that are still to come; `None` if that is not known.
    to_come: Option<usize>,
}

impl<'s> Excerpter<'s> {
    pub(super) fn new(selection: &'s Selection, limit: u64) -> Self {
        Self {
            selection,
            room: limit,
            text: Vec::new(),
            open: Vec::new(),
            is_empty: true,
            to_come: selection.payloads.as_ref().map(Vec::len),
        }
    }

    /// The document of what was taken.
    pub(super) fn finish(mut self) -> Vec<u8> {
        // The end of it may not have been waited for.
        while let Some((_, close)) = self.open.pop() {
            self.text.push(close);
        }
        self.text
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let left = self.room.checked_sub(bytes.len() as u64);
        self.room = left.ok_or(Stop::TooLarge)?;
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what stands before a value.
    fn lead(&mut self, way: &[Step]) -> Result<(), Stop> {
        if !self.is_empty {
            self.write(b",")?;
        }
        self.is_empty = false;
        if let Some(Step::Member(name)) = way.last() {
            let name = serde_json::to_vec(name).unwrap_or_default();
            self.write(&name)?;
            self.write(b":")?;
        }
        Ok(())
    }

    fn enter(&mut self, way: &[Step], first: u8) -> Result<Interest, Stop> {
        let close = match first {
            b'{' => b'}',
            b'[' => b']',
            // It is something else than was expected: whoever opens the document will say so.
            _ => return self.take(way),
        };
        self.lead(way)?;
        self.write(&[first])?;
        self.open.push((way.len(), close));
        self.is_empty = true;
        Ok(Interest::Enter)
    }

    fn take(&mut self, way: &[Step]) -> Result<Interest, Stop> {
        self.lead(way)?;
        Ok(Interest::Copy)
    }
}

impl Guide for Excerpter<'_> {
    type Error = Stop;

    fn meet(&mut self, way: &[Step], first: u8) -> Result<Interest, Stop> {
        use Step::{Item, Member};

        match way {
            [] | [_, Item(_)] => self.enter(way, first),
            [Member(name)] if name == "steps" => self.enter(way, first),
            [Member(name)] if matches!(name.as_str(), "v" | "trace_id" | "subject") => {
                self.take(way)
            }
            [_, _, Member(name)] if matches!(name.as_str(), "name" | "function") => self.take(way),
            [_, Item(place), Member(member)] => match kind_of(member) {
                Some((kind, _)) if !self.selection.wants(*place, kind) => Ok(Interest::StepOver),
                Some((_, is_json)) if is_json && self.selection.part != Part::Whole => {
                    self.enter(way, first)
                }
                Some(_) => self.take(way),
                None => Ok(Interest::StepOver),
            },
            [_, _, Member(payload), Member(member)] => match kind_of(payload) {
                Some((kind, _)) if !self.selection.part.wants(kind, member) => {
                    Ok(Interest::StepOver)
                }
                Some(_) if self.selection.resource.is_some() => self.enter(way, first),
                Some(_) => self.take(way),
                None => Ok(Interest::StepOver),
            },
            [_, _, _, _, Member(part)] => match (part.as_str(), &self.selection.resource) {
                ("composite", Some(name)) if name.is_empty() => self.take(way),
                ("resources", Some(name)) if !name.is_empty() => self.enter(way, first),
                _ => Ok(Interest::StepOver),
            },
            [_, _, _, _, _, Member(name)] if Some(name) == self.selection.resource.as_ref() => {
                self.take(way)
            }
            _ => Ok(Interest::StepOver),
        }
    }

    fn copy(&mut self, piece: &[u8]) -> Result<(), Stop> {
        self.write(piece)
    }

    fn leave(&mut self, way: &[Step], _: u64) -> Result<(), Stop> {
        if let Some((_, close)) = self.open.pop_if(|(depth, _)| *depth == way.len()) {
            self.write(&[close])?;
            self.is_empty = false;
        }
        let [_, Step::Item(place), Step::Member(member)] = way else {
            return Ok(());
        };
        let wanted = kind_of(member).filter(|(kind, _)| self.selection.wants(*place, *kind));
        if let (Some(_), Some(to_come)) = (wanted, &mut self.to_come) {
            *to_come = to_come.saturating_sub(1);
            if *to_come == 0 {
                return Err(Stop::Done);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        answers::{Payload, StoredDocument},
        json::{Walk, WalkError},
        line::samples,
    };

    const DOCUMENT: &str = r#"{"v":1,"trace_id":"t","subject":{"type":"composite","api_version":"","kind":"",
        "namespace":"","name":"","uid":"","composition":""},"steps":[
        {"index":0,"name":"a","function":"f","error":null,"request":{"meta":{},"observed":{"composite":{"resource":1},
        "resources":{"r":{"resource":{"x":1}},"s":{}}},"desired":{}},"response":{"desired":{"resources":{"r":{}}},"results":[]}},
        {"index":1,"name":"b","function":"g","request":{"observed":{},"desired":{"resources":{"s":{},"r":{}}}},
        "response_text":"no \"JSON\""},
        {"index":2,"name":"c","function":"h","request":null,"response":{"desired":{"resources":{}}, "context": [1]}}]}"#;

    fn excerpt(selection: &Selection, limit: u64) -> Option<StoredDocument> {
        let texts: Vec<_> = [1, 7, DOCUMENT.len()]
            .into_iter()
            .map(|pieces| {
                let mut excerpter = Excerpter::new(selection, limit);
                let mut walk = Walk::default();
                for piece in DOCUMENT.as_bytes().chunks(pieces) {
                    match walk.go_on(piece, &mut excerpter) {
                        Ok(()) => {}
                        Err(WalkError::Guide(Stop::Done)) => break,
                        Err(_) => return None,
                    }
                }
                Some(excerpter.finish())
            })
            .collect();
        assert!(texts.iter().all(|text| *text == texts[0]));
        StoredDocument::new(texts[0].clone()?).ok()
    }

    /// The payloads of an excerpt, those that are missing as a dash.
    fn payloads(selection: &Selection) -> Vec<String> {
        let stored = excerpt(selection, 10_000).unwrap();
        let document = stored.open().unwrap();
        let mut told = Vec::new();
        for step in &document.steps {
            for kind in [RecordKind::Request, RecordKind::Response] {
                told.push(match step.payload(kind) {
                    Payload::Missing => "-".to_owned(),
                    Payload::Json(text) | Payload::Text(text) | Payload::Base64(text) => {
                        text.split_whitespace().collect()
                    }
                });
            }
        }
        told
    }

    fn line() -> Line {
        let mut line = samples::line("t", samples::at(0));
        let at = |place: usize, member: &str| {
            Some(PayloadRef {
                pointer: format!("/steps/{place}/{member}"),
                sha256: String::new(),
                size: 1,
                redacted: 0,
            })
        };
        let step = line.steps[0].clone();
        let members = [
            ("request", "response"),
            ("request", "response_text"),
            ("", "response"),
        ];
        let steps = members
            .into_iter()
            .enumerate()
            .map(|(place, (request, response))| {
                let mut step = step.clone();
                step.request = at(place, request).filter(|_| !request.is_empty());
                step.response = at(place, response);
                step
            });
        line.steps = steps.collect();
        line
    }

    #[test]
    fn everything_is_all_payloads_as_they_are() {
        let told = payloads(&Selection::everything());
        assert!(told[0].starts_with(r#"{"meta":{},"observed":{"composite""#));
        assert_eq!(told[3], r#"no"JSON""#);
        assert_eq!(told[4], "-");
        assert_eq!(told[5], r#"{"desired":{"resources":{}},"context":[1]}"#);
    }

    #[test]
    fn states_leave_out_the_rest() {
        let told = payloads(&Selection::states());
        assert_eq!(
            told[0],
            r#"{"observed":{"composite":{"resource":1},"resources":{"r":{"resource":{"x":1}},"s":{}}},"desired":{}}"#
        );
        assert_eq!(told[1], r#"{"desired":{"resources":{"r":{}}}}"#);
        assert_eq!(
            told[3], r#"no"JSON""#,
            "whoever asks is told that it is no JSON"
        );
        assert_eq!(told[5], r#"{"desired":{"resources":{}}}"#);
    }

    #[test]
    fn a_step_and_the_ends_are_found_by_their_pointers() {
        let line = line();
        let told = payloads(&Selection::of_step(&line.steps[1]));
        assert_eq!(told[0], "-");
        assert!(told[2].starts_with(r#"{"observed":{},"desired""#) && told[3].contains("JSON"));
        assert_eq!(told.len(), 4, "what comes behind it is not waited for");
        let told = payloads(&Selection::ends(&line));
        assert!(told[0].starts_with(r#"{"observed":{"composite""#) && !told[0].contains("desired"));
        assert_eq!(told[1..5], ["-", "-", "-", "-"]);
        assert_eq!(told[5], r#"{"desired":{"resources":{}}}"#);
    }

    #[test]
    fn one_resource_is_taken_out_of_all_states() {
        let told = payloads(&Selection::states().of_resource("r"));
        assert_eq!(
            told[0],
            r#"{"observed":{"resources":{"r":{"resource":{"x":1}}}},"desired":{}}"#
        );
        assert_eq!(
            told[2],
            r#"{"observed":{},"desired":{"resources":{"r":{}}}}"#
        );
        let told = payloads(&Selection::states().of_resource(""));
        assert_eq!(
            told[0],
            r#"{"observed":{"composite":{"resource":1}},"desired":{}}"#
        );
    }

    #[test]
    fn what_does_not_fit_is_not_taken() {
        assert!(excerpt(&Selection::everything(), 300).is_none());
        assert!(excerpt(&Selection::states().of_resource("r"), 600).is_some());
    }
}
