//! The beginning of a reconcile that has no object of its own, since the previous reconcile was the
//! same: only its entry in the index says so, and where that object is.

use std::time::Duration;

use futures_util::StreamExt as _;

use super::{Archive, IndexError, Key, Query, REACH, StoreError};
use crate::{line::Line, reconcile::TraceId, time::Timestamp};

/// Core gives a reconcile two minutes.
const LONGEST: Duration = Duration::from_mins(5);

impl Archive {
    /// The entry of this reconcile that names the object of another one, if there is one that began
    /// around this moment: a little before, unless the clock was set meanwhile.
    pub(super) async fn noted_beginning(
        &self,
        trace_id: &TraceId,
        around: Timestamp,
    ) -> Result<Option<Line>, StoreError> {
        for reach in [LONGEST, REACH] {
            let beginning = self.noted_within(reach, trace_id, around).await?;
            if beginning.is_some() {
                return Ok(beginning);
            }
        }
        Ok(None)
    }

    async fn noted_within(
        &self,
        reach: Duration,
        trace_id: &TraceId,
        around: Timestamp,
    ) -> Result<Option<Line>, StoreError> {
        let query = Query {
            since: Some(around - reach),
            until: Some(around + reach),
            trace_id: Some(trace_id.0.to_string()),
            ..Query::default()
        };
        let mut lines = Box::pin(self.read_index(query));
        while let Some(line) = lines.next().await {
            match line {
                Ok(line) if *line.trace_id == *trace_id.0 && is_stored_elsewhere(&line) => {
                    return Ok(Some(line));
                }
                Err(IndexError::List { source, .. } | IndexError::Fetch { source, .. }) => {
                    return Err(source);
                }
                // Of other traces, or not readable.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// Whether a reconcile's payloads are in the object of another one, which it is equal to.
pub fn is_stored_elsewhere(line: &Line) -> bool {
    let key = Key::of_stored(&line.object.key);
    key.is_some_and(|key| !key.is_of_trace(&TraceId(line.trace_id.as_str().into())))
}
