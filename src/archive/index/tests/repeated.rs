//! More than one line of a trace.

use super::*;
use crate::line::Status;

#[tokio::test]
async fn a_line_that_was_written_again_is_given_once() {
    let archive = in_memory();
    let line = line("a", at(0));
    put(&archive, &key(at(0), 1, 1), batch([&line, &line])).await;
    put(&archive, &key(at(0), 2, 1), batch([&line])).await;
    assert_eq!(lines(&archive, Query::default()).await, [line]);
}

#[tokio::test]
async fn the_whole_takes_the_place_of_a_part() {
    let archive = in_memory();
    let part = line("a", at(0));
    let mut whole = with_steps(line("a", at(0)), 2);
    put(&archive, &key(at(0), 1, 1), batch([&part])).await;
    put(&archive, &key(at(0), 1, 2), batch([&whole])).await;
    assert_eq!(lines(&archive, Query::default()).await, [whole.clone()]);
    // The same steps, read later.
    whole.status = Status::Warning;
    put(&archive, &key(at(0), 2, 1), batch([&whole])).await;
    assert_eq!(lines(&archive, Query::default()).await, [whole]);
}

/// The same as a part that arrived late: its pipeline began elsewhere.
fn late(mut line: Line) -> Line {
    for (step, index) in line.steps.iter_mut().zip(2..) {
        step.index = index;
    }
    line
}

fn revised(mut line: Line, revision: u32) -> Line {
    line.revision = revision;
    line
}

#[tokio::test]
async fn of_parts_that_were_never_merged_the_larger_one_is_given() {
    let archive = in_memory();
    let most = with_steps(line("a", at(0)), 3);
    let rest = late(line("a", at(5)));
    put(&archive, &key(at(0), 1, 1), batch([&most, &rest])).await;
    assert_eq!(lines(&archive, Query::default()).await, [most]);
}

#[tokio::test]
async fn the_highest_revision_replaces_lines_that_were_written_later_or_have_more_steps() {
    let archive = in_memory();
    let [first, second] = [1, 2].map(|revision| revised(line("a", at(0)), revision));
    let more_steps = with_steps(line("a", at(0)), 5);
    put(
        &archive,
        &key(at(0), 1, 1),
        batch([&second, &first, &more_steps]),
    )
    .await;
    let found = lines(&archive, Query::default()).await;
    assert_eq!(found, std::slice::from_ref(&second));
    let by_status = Query {
        statuses: vec![Status::Error],
        ..Query::default()
    };
    let mut failed = line("a", at(5));
    failed.status = Status::Error;
    put(&archive, &key(at(0), 2, 1), batch([&failed])).await;
    assert_eq!(lines(&archive, by_status).await, []);
    assert_eq!(lines(&archive, Query::default()).await, [second]);
}

#[tokio::test]
async fn a_line_without_a_revision_is_the_first() {
    let archive = in_memory();
    let old = with_steps(line("a", at(0)), 5);
    let mut text = serde_json::to_value(&old).unwrap();
    text.as_object_mut().unwrap().remove("revision").unwrap();
    let mut text = text.to_string().into_bytes();
    text.push(b'\n');
    put(&archive, &key(at(0), 1, 1), compressed(&text)).await;
    assert_eq!(lines(&archive, Query::default()).await, [old]);
    let merged = revised(line("a", at(0)), 1);
    put(&archive, &key(at(0), 2, 1), batch([&merged])).await;
    assert_eq!(lines(&archive, Query::default()).await, [merged]);
}

#[tokio::test]
async fn a_late_part_of_the_next_hour_is_given_only_if_nothing_stands_for_it() {
    let hour = 3600;
    let part = with_steps(line("a", at(hour - 1)), 2);
    let rest = late(line("a", at(hour + 1)));
    let other = line("b", at(hour));
    let alone = late(line("c", at(hour + 2)));
    let larger = late(with_steps(line("a", at(hour + 1)), 3));
    for (rest, expected) in [(&rest, ["c", "b", "a"]), (&larger, ["c", "a", "b"])] {
        let archive = in_memory();
        put(&archive, &key(at(0), 1, 1), batch([&part])).await;
        let after = batch([rest, &other, &alone]);
        put(&archive, &key(at(hour), 1, 2), after).await;
        assert_eq!(traces(&archive, Query::default()).await, expected);
        // The line that stands for it began before.
        let since = Query {
            since: Some(at(hour)),
            ..Query::default()
        };
        let within = expected
            .iter()
            .filter(|trace| **trace != "a" || rest.steps.len() > 2);
        assert!(traces(&archive, since).await.iter().eq(within));
    }
}

#[tokio::test]
async fn a_part_that_was_stored_long_before_a_late_one_stands_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let part = with_steps(line("a", at(0)), 2);
    let rest = late(line("a", at(200)));
    for (sequence, line, stored_at) in [(1, &part, 10), (2, &rest, 210)] {
        let key = key(at(0), 1, sequence);
        put_at(folder.path(), &key, batch([line]), at(stored_at)).await;
    }
    let archive = on_disk(folder.path());
    assert_eq!(lines(&archive, Query::default()).await, [part]);
}

#[tokio::test]
async fn what_stands_for_a_line_does_so_even_if_it_is_not_asked_for() {
    let archive = in_memory();
    let mut part = line("a", at(0));
    part.status = Status::Incomplete;
    let whole = with_steps(line("a", at(0)), 2);
    put(&archive, &key(at(0), 1, 1), batch([&part, &whole])).await;
    let query = Query {
        statuses: vec![Status::Incomplete],
        ..Query::default()
    };
    assert_eq!(lines(&archive, query).await, []);
}

#[tokio::test]
async fn an_earlier_part_is_known_for_one_though_it_is_read_long_after() {
    let folder = tempfile::tempdir().unwrap();
    let part = line("a", at(0));
    let whole = with_steps(line("a", at(3000)), 2);
    let other = padded(line("b", at(2000)), 700_000);
    let put = async |sequence, line: &Line, stored_at| {
        let key = key(at(0), 1, sequence);
        put_at(folder.path(), &key, batch([line]), at(stored_at)).await;
    };
    put(1, &part, 10).await;
    put(2, &other, 2010).await;
    put(3, &whole, 3010).await;
    assert_eq!(
        traces(&on_disk(folder.path()), Query::default()).await,
        ["a", "b"]
    );
}
