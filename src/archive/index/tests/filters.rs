//! Whoever asks for some lines gets those that whoever asks for all can pick himself.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::line::{Dropped, Status};

const STATUSES: [Status; 3] = [Status::Ok, Status::Fatal, Status::Error];
const NAMES: [&str; 4] = ["prod", "pro\"d", "é\n", "\"steps\":["];

fn a_line() -> impl Strategy<Value = Line> {
    (
        select(&NAMES[..]),
        select(&STATUSES[..]),
        any::<bool>(),
        vec(select(&NAMES[..]), 0..3),
        (0..2_u64, any::<bool>()),
    )
        .prop_map(
            |(name, status, changed, functions, (dropped_count, drops))| {
                let mut line = line("", at(0));
                line.subject.name = name.to_owned();
                line.status = status;
                line.changed = changed;
                let step = |function: &&str| step(function, at(0));
                line.steps = functions.iter().map(step).collect();
                line.dropped_count = dropped_count;
                line.dropped.extend(drops.then(|| Dropped {
                    resource: "\"dropped\":[],\"dropped_count\":0".to_owned(),
                    step: None,
                    observed: true,
                }));
                line
            },
        )
}

fn a_query() -> impl Strategy<Value = Query> {
    (
        option::of(select(&NAMES[..])),
        vec(select(&STATUSES[..]), 0..2),
        option::of(any::<bool>()),
        option::of(select(&NAMES[..])),
        any::<bool>(),
        (option::of(0..9_i64), option::of(0..9_i64)),
    )
        .prop_map(
            |(name, statuses, changed, function, dropped, (since, until))| {
                let mut query = Query {
                    since: since.map(at),
                    until: until.map(at),
                    statuses,
                    changed,
                    dropped,
                    function: function.map(str::to_owned),
                    ..Query::default()
                };
                query.subject.name = name.map(str::to_owned);
                query
            },
        )
}

fn is_asked_for(query: &Query, line: &Line) -> bool {
    let name = query.subject.name.as_ref();
    let calls = |function: &String| line.steps.iter().any(|step| step.function == *function);
    query.since.is_none_or(|since| line.started_at >= since)
        && query.until.is_none_or(|until| line.started_at < until)
        && name.is_none_or(|name| line.subject.name == *name)
        && (query.statuses.is_empty() || query.statuses.contains(&line.status))
        && query.changed.is_none_or(|changed| line.changed == changed)
        && (!query.dropped || line.dropped_count > 0 || !line.dropped.is_empty())
        && query.function.as_ref().is_none_or(calls)
}

proptest! {
    #[test]
    fn filters_give_what_can_be_picked(mut written in vec(a_line(), 1..10), query in a_query()) {
        for (number, line) in written.iter_mut().enumerate() {
            line.trace_id = format!("trace {number}");
            line.started_at = at(i64::try_from(number).unwrap());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(async {
            let archive = in_memory();
            put(&archive, &key(at(0), 1, 1), batch(&written)).await;
            lines(&archive, query.clone()).await
        });
        written.retain(|line| is_asked_for(&query, line));
        written.reverse();
        prop_assert_eq!(read, written);
    }
}
