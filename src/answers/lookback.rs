//! Looking back: where a resource was seen last that is not there any more.
//!
//! Invariant: bounded, however much is stored. Lines tell what the pipeline calls a resource; only
//! payloads tell its name in the cluster, so that fewer of those are looked into.

use super::{
    find::{Answers, PayloadsError},
    history::{asked_for_by, resources_named},
    matrix::find,
    pipeline::Pipeline,
};
use crate::{
    archive::{IndexError, Query, SubjectFilter},
    line::Line,
    time::Timestamp,
};

/// Past reconciles whose lines are looked at.
const LINES: usize = 10_000;
/// Past reconciles that changed something whose payloads are looked into.
const PAYLOADS: usize = 50;

impl Answers {
    /// The last reconcile of the same subject before this one whose line names a resource.
    pub async fn named_last(
        &self,
        line: &Line,
        resource: &str,
        since: Option<Timestamp>,
    ) -> Result<Option<Line>, IndexError> {
        let names_it = |line: &Line| resources_named(line).contains(resource);
        self.last_before(line, since, names_it).await
    }

    /// The last one in which a step asked for a resource.
    pub async fn asked_last(
        &self,
        line: &Line,
        resource: &str,
        since: Option<Timestamp>,
    ) -> Result<Option<Line>, IndexError> {
        let asks = |line: &Line| asked_for_by(line, resource).is_some();
        self.last_before(line, since, asks).await
    }

    async fn last_before(
        &self,
        line: &Line,
        since: Option<Timestamp>,
        is_it: impl Fn(&Line) -> bool,
    ) -> Result<Option<Line>, IndexError> {
        let mut reading = self.read(before(line, since));
        for _ in 0..LINES {
            match reading.next().await {
                Some(line) if is_it(&line) => return reading.end(Some(line)),
                Some(_) => {}
                None => break,
            }
        }
        reading.end(None)
    }

    /// The last one that observed a resource of this name in the cluster.
    pub async fn observed_last(
        &self,
        line: &Line,
        resource: &str,
        since: Option<Timestamp>,
    ) -> Result<Option<Line>, IndexError> {
        let query = Query {
            changed: Some(true),
            ..before(line, since)
        };
        let mut reading = self.read(query);
        for _ in 0..PAYLOADS {
            let Some(line) = reading.next().await else {
                break;
            };
            match self.observes(&line, resource).await {
                Ok(true) => return reading.end(Some(line)),
                Ok(false) => {}
                // What stood before is gone as well.
                Err(PayloadsError::Gone { .. }) => break,
                Err(error) => tracing::debug!(%error, "cannot look into a past reconcile"),
            }
        }
        reading.end(None)
    }

    async fn observes(&self, line: &Line, resource: &str) -> Result<bool, PayloadsError> {
        let stored = self.payloads(line).await?;
        let document = stored.open().map_err(|source| PayloadsError::Open {
            key: line.object.key.clone(),
            source,
        })?;
        let pipeline = Pipeline::read(line, &document);
        Ok(called(&pipeline, resource).is_some())
    }
}

/// What came before a reconcile of the same subject.
fn before(line: &Line, since: Option<Timestamp>) -> Query {
    Query {
        since,
        until: Some(line.started_at),
        subject: subject_of(line),
        ..Query::default()
    }
}

/// What a line is of, also if that was deleted and made again.
pub fn subject_of(line: &Line) -> SubjectFilter {
    let subject = &line.subject;
    let group = subject.api_version.split_once('/');
    SubjectFilter {
        kind: Some(subject.kind.clone()),
        group: Some(group.map_or(String::new(), |(group, _)| group.to_owned())),
        namespace: Some(subject.namespace.clone()),
        name: Some(subject.name.clone()),
        uid: None,
    }
}

/// What the pipeline calls a resource, which people may call by its name in the cluster or by
/// `KIND/NAME`; empty for the composite, `None` if nothing is known by this name.
pub fn called<'n>(pipeline: &'n Pipeline<'_>, resource: &'n str) -> Option<&'n str> {
    let places = 0..pipeline.stages.len();
    let states = places.flat_map(|place| [pipeline.given(place), pipeline.returned(place)]);
    let mut states = states.chain([pipeline.observed.as_ref()]).flatten();
    if states.any(|state| find(state, resource).is_some()) {
        return Some(resource);
    }
    let observed = pipeline.observed.as_ref()?;
    let composed = observed.resources.iter();
    let composed = composed.map(|(name, observed)| (name.as_ref(), observed));
    let composite = observed.composite.iter().map(|observed| ("", observed));
    let by_name = composed.chain(composite).filter(|(_, observed)| {
        let title = || format!("{}/{}", observed.kind(), observed.name());
        !observed.name().is_empty()
            && (observed.name() == resource || title().eq_ignore_ascii_case(resource))
    });
    let mut names = by_name.map(|(name, _)| name);
    let name = names.next()?;
    // Two of one name are of different kinds: which of them is meant nobody can say.
    names.next().is_none().then_some(name)
}
