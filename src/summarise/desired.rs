//! Desired states: which resources, what their bodies digest to, and whether all that is desired of
//! a resource is observed.
//!
//! Invariant: a few words a resource, besides the fields that are bounded by themselves.

use serde::de::MapAccess;

use super::{
    allowance::Allowance,
    digest::{Digest, Leaves, NoLeaves, ROOT, Segment, digest_body, hash, member_path, mix},
    fields::{DesiredFields, FieldCollector},
    json::{As, Found, Object, Scalar, fill, look, one_of},
    names::{MAX_NUMBERED, NameId, Names},
    observed::Observed,
};

/// Resources of one name may come up any number of times; they are sorted out at this many.
const UNSETTLED: usize = 2 * MAX_NUMBERED;
/// A resource of a desired state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) id: NameId,
    /// Of its body and its connection details, not of its readiness.
    pub(super) digest: u64,
    is_ready: bool,
    /// Nothing is desired of it that is not observed.
    pub(super) is_applied: bool,
}

/// A desired state.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By id.
    pub(super) resources: Vec<Resource>,
    /// Resources whose names have no number, and how many of them are ready.
    unnumbered: u64,
    unnumbered_ready: u64,
}

impl State {
    pub(super) fn total(&self) -> u64 {
        self.resources.len() as u64 + self.unnumbered
    }

    pub(super) fn ready(&self) -> u64 {
        let ready = self.resources.iter().filter(|resource| resource.is_ready);
        ready.count() as u64 + self.unnumbered_ready
    }

    pub(super) fn find(&self, id: NameId) -> Option<&Resource> {
        let place = self.resources.binary_search_by_key(&id, |found| found.id);
        place.ok().and_then(|place| self.resources.get(place))
    }

    fn push(&mut self, resource: Resource) {
        if self.resources.len() >= UNSETTLED {
            self.settle();
        }
        self.resources.push(resource);
    }

    fn settle(&mut self) {
        self.resources.sort_by_key(|resource| resource.id);
        // NOTE: the sort is stable, so that of two resources of one name the last one stays.
        self.resources.dedup_by(|later, earlier| {
            let is_same = later.id == earlier.id;
            if is_same {
                *earlier = *later;
            }
            is_same
        });
    }
}

/// Reads a desired state.
#[derive(Debug)]
pub(super) struct DesiredReader<'r> {
    names: &'r mut Names,
    allowance: &'r Allowance,
    /// What to hold the desired state against.
    observed: Option<&'r Observed>,
    fields: Option<FieldCollector>,
    state: State,
    is_unknown: bool,
}

impl<'r> DesiredReader<'r> {
    /// For digests alone.
    pub(super) fn of_request(names: &'r mut Names, allowance: &'r Allowance) -> Self {
        Self {
            names,
            allowance,
            observed: None,
            fields: None,
            state: State::default(),
            is_unknown: false,
        }
    }

    pub(super) fn of_response(
        names: &'r mut Names,
        allowance: &'r Allowance,
        observed: Option<&'r Observed>,
    ) -> Self {
        Self {
            observed,
            fields: Some(FieldCollector::default()),
            ..Self::of_request(names, allowance)
        }
    }

    /// The state and its fields; `None` if something else stands in its place, or if it is too
    /// large to be looked at.
    pub(super) fn finish(mut self, found: Found) -> Option<(State, DesiredFields)> {
        if found == Found::Other || self.is_unknown || self.allowance.is_exceeded() {
            return None;
        }
        self.state.settle();
        let fields = self.fields.map(FieldCollector::finish);
        Some((self.state, fields.unwrap_or_default()))
    }
}

impl Object for DesiredReader<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["composite", "resources"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        if member == "composite" {
            let mut composite = DesiredComposite {
                fields: self.fields.as_mut(),
                allowance: self.allowance,
            };
            fill(members, &mut composite).map(drop)
        } else {
            self.state = State::default();
            let found = fill(members, &mut DesiredResources(self))?;
            self.is_unknown = found == Found::Other;
            Ok(())
        }
    }
}

/// The resources of a desired state, by name.
struct DesiredResources<'d, 'r>(&'d mut DesiredReader<'r>);

impl Object for DesiredResources<'_, '_> {
    type Member = Option<(NameId, u64)>;

    fn member(&mut self, name: &str) -> Option<Self::Member> {
        if !self.0.allowance.take() {
            return None;
        }
        let number = self.0.names.number(name);
        if let (Some((_, hash)), Some(fields)) = (number, &mut self.0.fields) {
            fields.begin(name, hash, "");
        }
        Some(number)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        number: Self::Member,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let allowance = self.0.allowance;
        let Some((id, name)) = number else {
            let mut body = Body::new(DesiredLeaves::default(), allowance);
            fill(members, &mut body)?;
            self.0.state.unnumbered += 1;
            self.0.state.unnumbered_ready += u64::from(body.is_ready);
            return Ok(());
        };
        let observed = self.0.observed;
        let leaves = DesiredLeaves {
            resource: name,
            observed: observed.filter(|observed| observed.holds_whole(id)),
            fields: self.0.fields.as_mut(),
            ..DesiredLeaves::default()
        };
        let mut body = Body::new(leaves, allowance);
        fill(members, &mut body)?;
        self.0.state.push(Resource {
            id,
            digest: mix(body.resource, body.details),
            is_ready: body.is_ready,
            is_applied: !body.leaves.has_news,
        });
        Ok(())
    }
}

/// A resource as it stands in a desired state.
struct Body<'l> {
    leaves: DesiredLeaves<'l>,
    allowance: &'l Allowance,
    resource: u64,
    details: u64,
    is_ready: bool,
}

impl<'l> Body<'l> {
    fn new(leaves: DesiredLeaves<'l>, allowance: &'l Allowance) -> Self {
        Self {
            leaves,
            allowance,
            resource: 0,
            details: 0,
            is_ready: false,
        }
    }
}

impl Object for Body<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["resource", "connectionDetails", "ready"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let allowance = self.allowance;
        match member {
            "resource" => self.resource = digest_body(members, &mut self.leaves, allowance)?,
            "connectionDetails" => self.details = digest_body(members, &mut NoLeaves, allowance)?,
            _ => self.is_ready = look(members, |ready| ready == Scalar::Text("READY_TRUE"))?,
        }
        Ok(())
    }
}

/// The composite of a desired state: only its fields are wanted.
struct DesiredComposite<'f> {
    fields: Option<&'f mut FieldCollector>,
    allowance: &'f Allowance,
}

impl Object for DesiredComposite<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        self.fields.is_some().then_some(name)?;
        one_of(&["resource"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        _: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        let leaves = DesiredLeaves {
            resource: hash(""),
            fields: self.fields.as_deref_mut(),
            ..DesiredLeaves::default()
        };
        let allowance = self.allowance;
        fill(members, &mut DesiredCompositeBody { leaves, allowance }).map(drop)
    }
}

struct DesiredCompositeBody<'f> {
    leaves: DesiredLeaves<'f>,
    allowance: &'f Allowance,
}

impl Object for DesiredCompositeBody<'_> {
    type Member = &'static str;

    fn member(&mut self, name: &str) -> Option<&'static str> {
        one_of(&["spec", "status"], name)
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: &'static str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        if let Some(fields) = &mut self.leaves.fields {
            fields.begin("", self.leaves.resource, member);
        }
        let digest = Digest {
            path: member_path(ROOT, member),
            leaves: &mut self.leaves,
            allowance: self.allowance,
        };
        members.next_value_seed(As(digest)).map(drop)
    }
}

/// A Secret takes it, turns it into `data`, and never gives it back.
const WRITE_ONLY: &str = "stringData";

/// The leaves of a desired resource.
#[derive(Default)]
struct DesiredLeaves<'l> {
    /// Hash of its name.
    resource: u64,
    /// `None` if it does not exist, or not all of it is known.
    observed: Option<&'l Observed>,
    fields: Option<&'l mut FieldCollector>,
    /// Something is desired of it that is not observed.
    has_news: bool,
    /// How deep in it we are.
    depth: usize,
    /// What is read can be written and never read back.
    is_write_only: bool,
}

impl Leaves for DesiredLeaves<'_> {
    fn skips(&self, _: u64) -> bool {
        false
    }

    fn enter(&mut self, segment: Segment<'_>) -> usize {
        if self.depth == 0 {
            self.is_write_only = matches!(segment, Segment::Member(WRITE_ONLY));
        }
        self.depth += 1;
        let fields = self.fields.as_mut();
        fields.map_or(0, |fields| fields.enter(segment))
    }

    fn leave(&mut self, mark: usize) {
        self.depth -= 1;
        if let Some(fields) = &mut self.fields {
            fields.leave(mark);
        }
    }

    fn leaf(&mut self, path: u64, value: u64) {
        if let Some(fields) = &mut self.fields {
            fields.leaf(path, value);
        }
        if let Some(observed) = self.observed
            && !self.has_news
            && !self.is_write_only
        {
            self.has_news = !observed.holds_leaf(self.resource, path, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summarise::json::parse;

    #[test]
    fn a_name_that_comes_up_over_and_over_takes_no_memory() {
        let resources = [r#""a":{"ready":"READY_TRUE"}"#, r#""b":{}"#].join(",");
        let many = vec![resources; 10 * MAX_NUMBERED].join(",");
        let json = format!(r#"{{"resources":{{{many},"a":{{}}}}}}"#);
        let mut names = Names::default();
        let allowance = Allowance::default();
        let mut reader = DesiredReader::of_request(&mut names, &allowance);
        parse(json.as_bytes(), &mut reader).unwrap();
        assert!(reader.state.resources.capacity() <= 2 * UNSETTLED);
        let (state, _) = reader.finish(Found::Object).unwrap();
        // Of two of one name the last counts.
        assert_eq!((state.total(), state.ready()), (2, 0));
    }
}
