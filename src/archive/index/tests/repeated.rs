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

#[tokio::test]
async fn a_late_part_is_given_beside_what_it_belongs_to() {
    let archive = in_memory();
    let most = with_steps(line("a", at(0)), 3);
    let rest = line("a", at(5));
    put(&archive, &key(at(0), 1, 1), batch([&most, &rest])).await;
    assert_eq!(lines(&archive, Query::default()).await, [rest, most]);
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
