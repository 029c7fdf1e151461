//! What a step was asked.
//!
//! Invariant: what is kept is bounded; the observed state is read only if it is wanted.

use serde::de::MapAccess;

use super::{
    allowance::Allowance,
    desired::{DesiredReader, State},
    digest::hash,
    json::{As, Count, Object, cut, fill, one_of, parse, skip, text},
    names::Names,
    observed::{Observed, ObservedReader},
};
use crate::line::{MAX_TEXT_BYTES, SubjectFacts};

/// Functions ask for a handful.
const MAX_REQUIRED: usize = 1024;

/// The facts of a request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tag: Option<String>,
    pub(super) input_kind: Option<String>,
    pub(super) required: Required,
    /// `None` if something else stands in its place, or if it is too large.
    pub(super) desired: Option<State>,
    /// `None` if it was not wanted, is too large, or something else stands in its place.
    pub(super) observed: Option<(Observed, SubjectFacts)>,
}

/// How many resources came along for each requirement.
#[derive(Debug, Default)]
pub(super) struct Required(Vec<(u64, u64)>);

impl Required {
    /// How many came for the requirement of this name; `None` if the request does not name it.
    pub(super) fn found(&self, name: &str) -> Option<u64> {
        let name = hash(name);
        let same_name = self.0.iter().filter(|(found, _)| *found == name);
        same_name.map(|(_, count)| *count).max()
    }
}

/// The request in this JSON; `None` if it can't be read.
pub(super) fn read_request(
    json: &[u8],
    names: &mut Names,
    allowance: &Allowance,
    wants_observed: bool,
) -> Option<Request> {
    let mut reader = RequestReader {
        names,
        allowance,
        wants_observed,
        extra: Required::default(),
        request: Request {
            tag: None,
            input_kind: None,
            required: Required::default(),
            desired: Some(State::default()),
            observed: wants_observed.then(Default::default),
        },
    };
    parse(json, &mut reader).ok()?;
    let RequestReader {
        mut request, extra, ..
    } = reader;
    request.required.0.extend(extra.0);
    Some(request)
}

struct RequestReader<'r> {
    names: &'r mut Names,
    allowance: &'r Allowance,
    wants_observed: bool,
    request: Request,
    /// What older functions are given besides.
    extra: Required,
}

impl Object for RequestReader<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        let names = [
            "meta",
            "observed",
            "desired",
            "input",
            "requiredResources",
            "extraResources",
        ];
        one_of(&names, name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let request = &mut self.request;
        match member {
            "meta" => {
                request.tag = None;
                fill(members, &mut Tag(&mut request.tag))?;
            }
            "observed" if self.wants_observed => {
                let mut observed = ObservedReader::new(self.names, self.allowance);
                let found = fill(members, &mut observed)?;
                request.observed = observed.finish(found);
            }
            "desired" => {
                let mut desired = DesiredReader::of_request(self.names, self.allowance);
                let found = fill(members, &mut desired)?;
                request.desired = desired.finish(found).map(|(state, _)| state);
            }
            "input" => {
                let mut input = Input::default();
                fill(members, &mut input)?;
                request.input_kind = input.kind_and_group();
            }
            "requiredResources" => {
                request.required = Required::default();
                fill(members, &mut request.required)?;
            }
            "extraResources" => {
                self.extra = Required::default();
                fill(members, &mut self.extra)?;
            }
            _ => skip(members)?,
        }
        Ok(())
    }
}

/// `meta`, of which the tag is wanted.
struct Tag<'t>(&'t mut Option<String>);

impl Object for Tag<'_> {
    type Member = ();

    fn member(&mut self, name: &str) -> Option<()> {
        (name == "tag").then_some(())
    }

    fn read<'de, A: MapAccess<'de>>(&mut self, (): (), members: &mut A) -> Result<(), A::Error> {
        *self.0 = text(members)?;
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Input {
    api_version: Option<String>,
    kind: Option<String>,
}

impl Input {
    /// `Kind.group`, or `Kind` alone in the core group.
    fn kind_and_group(self) -> Option<String> {
        let kind = self.kind?;
        let api_version = self.api_version.unwrap_or_default();
        Some(match api_version.split_once('/') {
            Some((group, _)) if !group.is_empty() => format!("{kind}.{group}"),
            _ => kind,
        })
    }
}

impl Object for Input {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["apiVersion", "kind"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let value = text(members)?;
        match member {
            "kind" => self.kind = value,
            _ => self.api_version = value,
        }
        Ok(())
    }
}

impl Object for Required {
    type Member = u64;

    fn member(&mut self, name: &str) -> Option<u64> {
        // NOTE: asked for by the name in the response, which is cut.
        let name = hash(cut(name, MAX_TEXT_BYTES));
        (self.0.len() < MAX_REQUIRED).then_some(name)
    }

    fn read<'de, A: MapAccess<'de>>(&mut self, name: u64, members: &mut A) -> Result<(), A::Error> {
        let mut items = Items(0);
        fill(members, &mut items)?;
        self.0.push((name, items.0));
        Ok(())
    }
}

/// A list of resources, of which the number is wanted.
struct Items(u64);

impl Object for Items {
    type Member = ();

    fn member(&mut self, name: &str) -> Option<()> {
        (name == "items").then_some(())
    }

    fn read<'de, A: MapAccess<'de>>(&mut self, (): (), members: &mut A) -> Result<(), A::Error> {
        self.0 = members.next_value_seed(As(Count))?;
        Ok(())
    }
}
