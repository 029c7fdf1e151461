//! `spanplane ls --follow`: reconciles as they come.
//!
//! Invariant: a reconcile that was there when it began is shown once or, behind the limit, never.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use futures_util::StreamExt as _;
use spanplane::{
    archive::Query,
    line::Line,
    time::{Clock as _, SystemClock, Timestamp},
};

use super::{ls::List, session::Session, trouble::tell_trouble};

/// How often the index is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A line comes up to a minute after its reconcile ended, which may have waited for a response for
/// more than two.
const LATE: Duration = Duration::from_mins(10);

/// Looks again and again, and shows what was not there before.
pub(super) async fn follow(
    session: &mut Session,
    mut list: List,
    query: Query,
    limit: usize,
) -> anyhow::Result<ExitCode> {
    let mut seen = Seen::default();
    // What is there already is no news, also where the limit keeps it from being shown.
    let there = read(session, lately(&query), usize::MAX).await;
    seen.take_news(there);
    let shown = read(session, query.clone(), limit).await;
    seen.take_news(shown.clone());
    list.widen();
    list.fit(session);
    show(session, &mut list, &shown, true)?;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        session.now = SystemClock.now();
        let lines = read(session, lately(&query), usize::MAX).await;
        let news = seen.take_news(lines);
        show(session, &mut list, &news, false)?;
        seen.forget(session.now);
    }
}

/// The part of a query whose answer may still grow.
fn lately(query: &Query) -> Query {
    Query {
        since: Some(SystemClock.now() - LATE).max(query.since),
        ..query.clone()
    }
}

/// The newest lines; what can't be read is told.
async fn read(session: &Session, query: Query, limit: usize) -> Vec<Line> {
    let lines = session.answers.lines(query);
    let lines = lines.filter_map(async |line| line.inspect_err(tell_trouble).ok());
    lines.take(limit).collect().await
}

/// Shows lines that came newest first, the newest last.
fn show(
    session: &mut Session,
    list: &mut List,
    lines: &[Line],
    has_head: bool,
) -> anyhow::Result<()> {
    for line in lines.iter().rev() {
        list.add(session, line)?;
    }
    if session.screen.format().is_for_people() {
        let head = has_head.then(|| list.table.head());
        let rows = list.table.take_rows();
        session.screen.rows(head.iter().chain(&rows))?;
    }
    Ok(session.screen.flush()?)
}

/// The reconciles that were seen, each with how many steps it had: a part that came late stands in
/// a line of its own, with more of them.
#[derive(Default)]
struct Seen(BTreeMap<(Timestamp, String), usize>);

impl Seen {
    /// Those of these lines that were not seen before.
    fn take_news(&mut self, lines: Vec<Line>) -> Vec<Line> {
        let is_news = |line: &Line| {
            let key = (line.started_at, line.trace_id.clone());
            self.0.insert(key, line.steps.len()) != Some(line.steps.len())
        };
        lines.into_iter().filter(is_news).collect()
    }

    /// Drops what no query will find again.
    fn forget(&mut self, now: Timestamp) {
        self.0
            .retain(|(started_at, _), _| *started_at + LATE * 2 > now);
    }
}
