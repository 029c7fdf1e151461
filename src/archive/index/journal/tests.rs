//! The journal through crashes, full disks and other people's files.

use std::fs;

use super::*;
use crate::{
    archive::Compression,
    disk::simulated::{Death, SimulatedDisk},
    line::samples::{at, line, padded},
};

fn instance(start: i64) -> InstanceName {
    InstanceName::new("pod", Timestamp::from_nanos(start))
}

fn open(folder: &Path, start: i64) -> IndexJournal {
    IndexJournal::open(
        std::sync::Arc::new(crate::disk::LocalDisk),
        folder.to_owned(),
        instance(start),
    )
    .unwrap()
}

/// The traces in a batch that is ready.
fn traces(batch: &ReadyBatch) -> Vec<String> {
    let stored = fs::read(&batch.path).unwrap();
    assert_eq!(stored.len() as u64, batch.bytes);
    let lines = Compression::Zstd.decode(&stored, u64::MAX).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.ends_with('\n'));
    let parse = |line| serde_json::from_str::<Line>(line).unwrap().trace_id;
    lines.lines().map(parse).collect()
}

fn all_traces(journal: &IndexJournal) -> Vec<Vec<String>> {
    journal.ready().map(traces).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn a_batch_is_closed_after_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    assert_eq!(journal.next_deadline(), None);
    journal.append(&line("a", at(0)), at(5)).unwrap();
    journal.append(&line("b", at(1)), at(20)).unwrap();
    assert_eq!(journal.next_deadline(), Some(at(65)));
    journal.close_due(at(64), false).unwrap();
    assert_eq!(journal.ready().count(), 0);
    journal.close_due(at(65), false).unwrap();
    assert_eq!(all_traces(&journal), [["a", "b"]]);
    assert_eq!(journal.next_deadline(), None);
    let key = journal.ready().next().unwrap().key.to_string();
    assert_eq!(
        key,
        "v1/index/date=2023-11-14/hour=04/pod-0000000000000001-00000001.jsonl.zst"
    );
}

#[test]
fn a_full_batch_is_closed_at_once_and_never_grows_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    for trace in ["a", "b", "c"] {
        let long = padded(line(trace, at(0)), 700_000);
        journal.append(&long, at(1)).unwrap();
    }
    assert!(journal.next_deadline().unwrap() < at(1));
    journal.close_due(at(1), false).unwrap();
    assert_eq!(all_traces(&journal), [["a", "b"]]);
    assert_eq!(journal.next_deadline(), Some(at(61)));
}

#[test]
fn a_clock_that_is_set_back_keeps_no_batch_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    journal.append(&line("a", at(0)), at(3600)).unwrap();
    journal.close_due(at(0), false).unwrap();
    assert_eq!(all_traces(&journal), [["a"]]);
}

#[test]
fn a_fifth_hour_closes_the_batch_that_was_begun_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    for (trace, hour) in [("a", 3), ("b", 0), ("c", 1), ("d", 2), ("e", 4), ("f", 0)] {
        let started_at = at(hour * 3600);
        journal
            .append(&line(trace, started_at), at(20_000))
            .unwrap();
    }
    journal.close_due(at(20_000), false).unwrap();
    assert_eq!(all_traces(&journal), [["a"]]);
    journal.close_due(at(20_000), true).unwrap();
    assert_eq!(
        all_traces(&journal),
        [vec!["a"], vec!["b", "f"], vec!["c"], vec!["d"], vec!["e"]]
    );
}

#[test]
fn a_batch_that_waits_to_be_closed_is_synced_as_the_open_ones_are() {
    for seed in 0..20 {
        let disk = SimulatedDisk::with_seed(seed);
        let folder = Path::new("/index");
        let open = |start| {
            let disk = std::sync::Arc::new(disk.clone());
            IndexJournal::open(disk, folder.to_owned(), instance(start)).unwrap()
        };
        let mut journal = open(1);
        let hours = i64::try_from(MAX_OPEN).unwrap() + 1;
        for hour in 0..hours {
            let started_at = at(hour * 3600);
            journal
                .append(&line(&hour.to_string(), started_at), at(20_000))
                .unwrap();
        }
        // The first of them is not open any more.
        journal.sync().unwrap();
        drop(journal);
        disk.restart(Death::PowerFailure);
        let journal = open(2);
        for hour in 0..hours {
            assert!(
                journal.has(&line(&hour.to_string(), at(hour * 3600))),
                "{seed} {hour}"
            );
        }
    }
}

#[test]
fn a_crash_loses_nothing_but_a_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    journal.append(&line("a", at(0)), at(0)).unwrap();
    journal.close_due(at(60), false).unwrap();
    journal.append(&line("b", at(61)), at(61)).unwrap();
    journal.append(&line("c", at(62)), at(62)).unwrap();
    let keys = |journal: &IndexJournal| -> Vec<_> {
        journal.ready().map(|batch| batch.key.clone()).collect()
    };
    let closed = keys(&journal);
    let torn = FileKind::Lines.path(folder.path(), &journal.open[0].key);
    drop(journal);
    let whole = fs::read(&torn).unwrap();
    fs::write(&torn, &whole[..whole.len() - 3]).unwrap();

    let mut journal = open(folder.path(), 2);
    assert_eq!(all_traces(&journal), [["a"], ["b"]]);
    let taken_up = keys(&journal);
    assert_eq!(taken_up[..1], closed);
    assert_eq!(taken_up[1].instance, instance(1));
    assert_eq!(taken_up[1].sequence, 2);
    let has = |trace, started_at| journal.has(&line(trace, started_at));
    assert!(has("a", at(0)) && has("b", at(61)) && !has("c", at(62)));
    // A part of it that came late is another line.
    assert!(!has("a", at(1)));
    journal.append(&line("d", at(70)), at(70)).unwrap();
    assert!(!journal.has(&line("d", at(70))));
    journal.remember(&line("d", at(70)));
    assert!(journal.has(&line("d", at(70))));
    journal.close_due(at(70), true).unwrap();
    let last = journal.ready().last().unwrap();
    assert_eq!((last.key.sequence, &last.key.instance), (1, &instance(2)));
}

#[test]
fn what_was_under_way_when_the_process_died_is_done_again_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    journal.append(&line("a", at(0)), at(0)).unwrap();
    let lines = FileKind::Lines.path(folder.path(), &journal.open[0].key);
    let unfinished = FileKind::Unfinished.path(folder.path(), &journal.open[0].key);
    let content = fs::read(&lines).unwrap();
    journal.close_due(at(0), true).unwrap();
    let batch = journal.ready().next().unwrap().clone();
    let compressed = fs::read(&batch.path).unwrap();
    drop(journal);

    // Between the renaming and the removing.
    fs::write(&lines, &content).unwrap();
    assert_eq!(all_traces(&open(folder.path(), 2)), [["a"]]);
    assert_eq!(names(folder.path()).len(), 1);

    // While compressing.
    fs::remove_file(&batch.path).unwrap();
    fs::write(&lines, &content).unwrap();
    fs::write(&unfinished, &compressed[..5]).unwrap();
    let journal = open(folder.path(), 3);
    assert_eq!(journal.ready().collect::<Vec<_>>(), [&batch]);
    assert_eq!(fs::read(&batch.path).unwrap(), compressed);
    assert_eq!(names(folder.path()).len(), 1);
}

#[test]
fn a_name_is_never_used_twice_by_the_same_instance() {
    let folder = tempfile::tempdir().unwrap();
    for trace in ["a", "b"] {
        let mut journal = open(folder.path(), 1);
        journal.append(&line(trace, at(0)), at(0)).unwrap();
    }
    assert_eq!(all_traces(&open(folder.path(), 1)), [["a"], ["b"]]);
}

#[test]
fn only_the_last_traces_of_an_earlier_process_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    for trace in ["first", "second"] {
        journal.append(&line(trace, at(0)), at(0)).unwrap();
        journal.close_due(at(0), true).unwrap();
    }
    let key = journal.ready().last().unwrap().key.clone();
    drop(journal);
    // Only what lines are known by: there are many.
    let sample = &line("", at(0)).steps[0];
    let step = serde_json::json!({"request": sample.request, "ended_at": sample.ended_at});
    let many: Vec<_> = (0..earlier::MAX_LINES)
        .map(|number| {
            let at = at(0).rfc3339();
            let object = r#"{"key":"","state":"stored","bytes":1}"#;
            format!(
                r#"{{"trace_id":"{number}","started_at":"{at}","ended_at":"{at}","steps":[{step}],"object":{object}}}"#
            ) + "\n"
        })
        .collect();
    let key = IndexKey {
        sequence: key.sequence + 1,
        ..key
    };
    fs::write(FileKind::Lines.path(folder.path(), &key), many.concat()).unwrap();
    let journal = open(folder.path(), 2);
    let has = |trace: &str| journal.has(&line(trace, at(0)));
    assert!(has("0") && has(&(earlier::MAX_LINES - 1).to_string()));
    assert!(!has("first") && !has("second"));
    assert!(journal.earlier.is_full());
}

#[test]
fn stored_batches_go_and_may_be_gone_already() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    for trace in ["a", "b"] {
        journal.append(&line(trace, at(0)), at(0)).unwrap();
        journal.close_due(at(0), true).unwrap();
    }
    let batches: Vec<_> = journal.ready().cloned().collect();
    let bytes = disk_use(batches[0].bytes) + disk_use(batches[1].bytes);
    assert_eq!(journal.waiting_bytes(), bytes);
    fs::remove_file(&batches[0].path).unwrap();
    journal.remove(&batches[0]);
    assert_eq!(journal.ready().collect::<Vec<_>>(), [&batches[1]]);
    journal.remove(&batches[1]);
    assert_eq!(journal.waiting_bytes(), 0);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn files_of_others_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let others = ["2026-11-16T04-pod.jsonl", "README", "lost+found"];
    for name in others {
        fs::write(folder.path().join(name), "torn").unwrap();
    }
    fs::create_dir(folder.path().join("2026-11-16T04-pod-00000001.jsonl")).unwrap();
    let journal = open(folder.path(), 1);
    assert_eq!(journal.ready().count(), 0);
    assert_eq!(names(folder.path()).len(), 4);
}

#[test]
fn an_append_that_fails_may_be_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("journal");
    let mut journal = open(&folder, 1);
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    journal.append(&line("a", at(0)), at(0)).unwrap_err();
    assert_eq!(journal.next_deadline(), None);
    fs::remove_file(&folder).unwrap();
    journal.append(&line("a", at(0)), at(0)).unwrap();
    journal.close_due(at(0), true).unwrap();
    assert_eq!(all_traces(&journal), [["a"]]);
}

#[test]
fn a_batch_that_cannot_be_closed_is_tried_again_and_grows_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    journal.append(&line("a", at(0)), at(0)).unwrap();
    let in_the_way = FileKind::Unfinished.path(folder.path(), &journal.open[0].key);
    fs::create_dir(&in_the_way).unwrap();
    journal.close_due(at(60), false).unwrap_err();
    assert_eq!(journal.next_deadline(), Some(at(70)));
    journal.append(&line("b", at(0)), at(61)).unwrap();
    journal.close_due(at(65), true).unwrap_err();
    assert_eq!(all_traces(&journal), [["b"]]);
    fs::remove_dir(&in_the_way).unwrap();
    journal.close_due(at(66), false).unwrap();
    assert_eq!(journal.ready().count(), 1);
    journal.close_due(at(75), false).unwrap();
    assert_eq!(all_traces(&journal), [["a"], ["b"]]);
}

#[test]
fn a_batch_that_cannot_be_closed_at_the_start_does_not_keep_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    journal.append(&line("a", at(0)), at(0)).unwrap();
    let in_the_way = FileKind::Unfinished.path(folder.path(), &journal.open[0].key);
    drop(journal);
    fs::create_dir(&in_the_way).unwrap();
    let mut journal = open(folder.path(), 2);
    assert!(journal.has(&line("a", at(0))));
    assert!(journal.next_deadline().unwrap() < at(0));
    fs::remove_dir(&in_the_way).unwrap();
    journal.close_due(at(0), false).unwrap();
    assert_eq!(all_traces(&journal), [["a"]]);
}

#[test]
fn a_batch_whose_file_is_gone_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    journal.append(&line("a", at(0)), at(0)).unwrap();
    fs::remove_file(FileKind::Lines.path(folder.path(), &journal.open[0].key)).unwrap();
    journal.close_due(at(0), true).unwrap();
    assert_eq!(journal.ready().count(), 0);
    assert_eq!(journal.next_deadline(), None);
}

#[test]
fn a_line_too_long_to_be_read_back_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    let mut long = line("a", at(0));
    long.object.key = "x".repeat(MAX_LINE_BYTES);
    let error = journal.append(&long, at(0)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn what_waits_is_counted_in_whole_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), 1);
    for hour in 0..3 {
        let began = at(hour * 3600);
        journal.append(&line("a", began), began).unwrap();
    }
    assert_eq!(journal.waiting_bytes(), 3 * 4096);
    journal.close_due(at(0), true).unwrap();
    assert_eq!(journal.ready().count(), 3);
    assert_eq!(journal.waiting_bytes(), 3 * 4096);
}
