//! In which order lines are given, and what is read for that.

use std::{fs, sync::Arc};

use super::*;
use crate::archive::index::{
    hour::{CLOCK_SKEW, Hour},
    scan::StoredBatch,
};

#[tokio::test]
async fn lines_come_newest_first_whatever_batch_they_are_in() {
    let archive = in_memory();
    let day = 24 * 3600;
    let batches = [
        (at(0), 1, 1, vec![30, 10, 20]),
        (at(0), 1, 2, vec![15, 40]),
        (at(0), 2, 1, vec![25, 35, 5]),
        (at(3600), 2, 2, vec![3600]),
        (at(-day), 1, 3, vec![-day + 1, -day + 2]),
        (at(-3600), 3, 1, vec![-1]),
    ];
    for (hour, start, sequence, starts) in &batches {
        let begun = starts
            .iter()
            .map(|start| line(&start.to_string(), at(*start)));
        let lines: Vec<_> = begun.collect();
        put(&archive, &key(*hour, *start, *sequence), batch(&lines)).await;
    }
    let mut expected: Vec<i64> = batches.iter().flat_map(|batch| batch.3.clone()).collect();
    expected.sort_unstable_by_key(|start| -start);
    let expected: Vec<_> = expected.iter().map(i64::to_string).collect();
    assert_eq!(traces(&archive, Query::default()).await, expected);
}

#[tokio::test]
async fn of_lines_that_began_at_once_the_one_written_last_comes_first() {
    let archive = in_memory();
    let [a, b, c] = ["a", "b", "c"].map(|trace| line(trace, at(0)));
    put(&archive, &key(at(0), 1, 2), batch([&b, &c])).await;
    put(&archive, &key(at(0), 1, 1), batch([&a])).await;
    assert_eq!(traces(&archive, Query::default()).await, ["c", "b", "a"]);
}

/// A batch a minute with 10 lines, each stored a second after its last line began.
async fn store_hour(folder: &Path) -> Vec<IndexKey> {
    let mut keys = Vec::new();
    for (minute, sequence) in (0..60).zip(1..) {
        let second = |tenth: i64| minute * 60 + tenth * 6;
        let lines = (0..10).map(|tenth| line(&second(tenth).to_string(), at(second(tenth))));
        let lines: Vec<_> = lines.collect();
        let key = key(at(0), 1, sequence);
        put_at(folder, &key, batch(&lines), at(second(9) + 1)).await;
        keys.push(key);
    }
    keys
}

fn expected(newest: i64) -> impl Iterator<Item = String> {
    (0..).map(move |line| (newest - line * 6).to_string())
}

#[tokio::test]
async fn the_first_lines_take_a_few_batches_only() {
    let folder = tempfile::tempdir().unwrap();
    let keys = store_hour(folder.path()).await;
    // 50 lines stand in the last five; sixteen are read at once.
    for key in &keys[..60 - 16] {
        put_at(folder.path(), key, b"no zstd".to_vec(), at(0)).await;
    }
    let archive = on_disk(folder.path());
    let first: Vec<_> = archive
        .read_index(Query::default())
        .take(50)
        .collect()
        .await;
    let first: Vec<_> = first
        .into_iter()
        .map(|line| line.unwrap().trace_id)
        .collect();
    assert_eq!(first, expected(3594).take(50).collect::<Vec<_>>());

    let all = read(&archive, Query::default()).await;
    assert_eq!(all.iter().filter(|item| item.is_ok()).count(), 160);
    assert_eq!(all.iter().filter(|item| item.is_err()).count(), 44);
}

#[tokio::test]
async fn what_was_stored_before_the_time_asked_for_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let keys = store_hour(folder.path()).await;
    for (key, minute) in keys[..50].iter().zip(0..) {
        put_at(folder.path(), key, b"no zstd".to_vec(), at(minute * 60)).await;
    }
    let query = Query {
        since: Some(at(3300)),
        ..Query::default()
    };
    let expected: Vec<_> = expected(3594).take(50).collect();
    assert_eq!(traces(&on_disk(folder.path()), query).await, expected);
}

#[tokio::test]
async fn a_line_that_came_hours_late_stands_where_it_began() {
    let folder = tempfile::tempdir().unwrap();
    store_hour(folder.path()).await;
    let late = [line("late", at(61)), line("later", at(1))];
    let key = key(at(0), 1, 99);
    put_at(folder.path(), &key, batch(&late), at(50_000)).await;
    let mut expected: Vec<_> = expected(3594).take(600).collect();
    expected.insert(600 - 11, "late".to_owned());
    expected.insert(600, "later".to_owned());
    assert_eq!(
        traces(&on_disk(folder.path()), Query::default()).await,
        expected
    );
}

#[tokio::test]
async fn a_store_whose_clock_is_slow_loses_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let slow = CLOCK_SKEW + Duration::from_secs(1);
    let old = [line("a", at(1)), line("b", at(99))];
    let new = [line("c", at(98)), line("d", at(100))];
    let stored_at = at(98) - slow;
    put_at(folder.path(), &key(at(0), 1, 1), batch(&old), stored_at).await;
    // As large as may be read at once.
    let padded: Vec<_> = new.map(|line| padded(line, 700_000)).into();
    put_at(folder.path(), &key(at(0), 1, 2), batch(&padded), at(98)).await;
    assert_eq!(
        traces(&on_disk(folder.path()), Query::default()).await,
        ["d", "c", "b", "a"]
    );
}

#[tokio::test]
async fn lines_whose_text_was_let_go_of_are_fetched_again() {
    let archive = in_memory();
    let mut expected = Vec::new();
    for start in 1..=3 {
        for (sequence, first) in (1..).zip([0, 20, 40, 60]) {
            let lines: Vec<_> = (first..first + 20)
                .map(|second| padded(line(&format!("{second}-{start}"), at(second)), 50_000))
                .collect();
            put(&archive, &key(at(0), start, sequence), batch(&lines)).await;
        }
    }
    for second in (0..80).rev() {
        expected.extend((1..=3).rev().map(|start| format!("{second}-{start}")));
    }
    assert_eq!(traces(&archive, Query::default()).await, expected);
}

#[tokio::test]
async fn a_batch_that_vanishes_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let keys = store_hour(folder.path()).await;
    let archive = on_disk(folder.path());
    let mut stream = Box::pin(archive.read_index(Query::default()));
    stream.next().await.unwrap().unwrap();
    fs::remove_file(folder.path().join(keys[0].to_string())).unwrap();
    let rest: Vec<_> = stream.collect().await;
    assert_eq!(rest.len(), 600 - 1 - 10);
    assert!(rest.iter().all(Result::is_ok));
}

#[tokio::test]
async fn other_files_in_the_index_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let archive = on_disk(folder.path());
    put(&archive, &key(at(0), 1, 1), batch([&line("a", at(0))])).await;
    for path in [
        "v1/index/date=never/hour=04/a-00000001.jsonl.zst",
        "v1/index/date=2023-11-14/hour=99/a-00000001.jsonl.zst",
        "v1/index/date=2023-11-14/hour=04/README",
        "v1/index/date=2023-11-14/hour=04/below/a-00000001.jsonl.zst",
        "v1/index/README",
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "none of ours").unwrap();
    }
    assert_eq!(traces(&archive, Query::default()).await, ["a"]);
}

#[tokio::test]
async fn more_lines_than_can_be_kept_in_order_are_given_all_the_same() {
    let archive = in_memory();
    let mut batches = Vec::new();
    for (sequence, second) in [(1, 30), (2, 20), (3, 10)] {
        // As large as may be read at once.
        let line = padded(line(&second.to_string(), at(second)), 700_000);
        let (key, body) = (key(at(0), 1, sequence), batch([&line]));
        batches.push(StoredBatch {
            key: key.clone(),
            stored_at: at(9_000),
            size: body.len() as u64,
        });
        put(&archive, &key, body).await;
    }
    let mut hour = Hour::new(archive, Arc::default(), batches, 1);
    let mut traces = Vec::new();
    while let Some(line) = hour.next().await {
        traces.push(line.unwrap().trace_id);
    }
    assert_eq!(traces, ["10", "20", "30"]);
}
