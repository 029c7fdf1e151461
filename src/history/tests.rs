//! What is remembered, for how long, and what of it survives.

use std::{fs, io::Write as _};

use proptest::prelude::*;

use super::{subjects::MAX_BYTES, *};
use crate::{
    disk::{
        Disk as _, disk_use,
        simulated::{Death, Fault, SimulatedDisk},
    },
    line::samples,
};

const STORE: &str = "s3://bucket/";
/// On a simulated disk.
const PATH: &str = "data/history.jsonl";
const AT: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

fn in_store(store: &str) -> Basis {
    Basis {
        store: store.to_owned(),
        redaction: "the usual".to_owned(),
    }
}

fn basis() -> Basis {
    in_store(STORE)
}

fn subject(name: &str) -> SubjectIdentity {
    SubjectIdentity(name.into())
}

fn last(content: &str) -> Last {
    Last {
        trace_id: format!("trace of {content}").into(),
        previous: None,
        ended_at: AT,
        fingerprint: Fingerprint::of(content.as_bytes()),
        object: Some(LastObject {
            key: format!("v1/reconciles/{content}").into(),
            started_at: AT,
            stored_at: Some(AT + Duration::from_secs(1)),
            bytes: 7,
        }),
    }
}

fn line(content: &str) -> Line {
    samples::line(&format!("trace of {content}"), AT)
}

fn note(history: &mut History, name: &str, content: &str) {
    history.note(&subject(name), last(content), &line(content), vec![1, 2]);
}

/// Everything so far is done with.
fn save(history: &mut History) {
    let done_until = history.begin();
    history.save(done_until);
}

fn knows(history: &mut History, name: &str, content: &str) -> bool {
    history.last(&subject(name)) == Some(&last(content))
}

fn links(history: &mut History, name: &str, content: &str, started_at: Timestamp) -> bool {
    let fingerprint = Fingerprint::of(content.as_bytes());
    let last = history.last(&subject(name));
    last.is_some_and(|last| last.object_for(fingerprint, started_at).is_some())
}

fn local_disk() -> crate::disk::SharedDisk {
    std::sync::Arc::new(crate::disk::LocalDisk)
}

#[test]
fn it_survives_a_restart_and_a_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    for (name, content) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
        note(&mut history, name, content);
    }
    save(&mut history);
    drop(history);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(br#"{"subject":"c","trace_id":"tor"#)
        .unwrap();

    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(knows(&mut history, "a", "2"));
    assert!(knows(&mut history, "b", "3"));
    assert!(knows(&mut history, "c", "4"));
    assert_eq!(history.line(&subject("c")), Some(line("4")));
    assert_eq!(history.fields(&subject("c")), [1, 2]);
}

#[test]
fn details_of_other_payloads_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    note(&mut history, "a", "1");
    note(&mut history, "a", "2");
    let stored = last("2").object.unwrap();
    history.object_stored(&subject("a"), last("2").fingerprint, stored);
    save(&mut history);
    drop(history);
    // The line that has the details of the second is lost.
    let lines = fs::read_to_string(&path).unwrap();
    let kept = lines.lines().enumerate().filter(|(number, _)| *number != 2);
    let kept = kept.map(|(_, line)| format!("{line}\n"));
    fs::write(&path, kept.collect::<String>()).unwrap();

    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(knows(&mut history, "a", "2"));
    assert_eq!(history.line(&subject("a")), None);
}

#[test]
fn the_same_again_keeps_the_details_and_moves_the_trace_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    history.note_again(&subject("a"), "second".into(), AT);
    history.note_again(&subject("a"), "third".into(), AT);
    // Done once more after a crash.
    history.note_again(&subject("a"), "third".into(), AT);
    save(&mut history);
    drop(history);
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    let known = history.last(&subject("a")).unwrap();
    assert_eq!(&*known.trace_id, "third");
    assert_eq!(known.before("fourth").as_deref(), Some("third"));
    assert_eq!(known.before("third").as_deref(), Some("second"));
    assert_eq!(history.line(&subject("a")), Some(line("1")));
}

#[test]
fn what_was_forgotten_stays_forgotten_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    assert!(links(&mut history, "a", "1", AT));
    history.forget_stored_until(AT + Duration::from_secs(1));
    assert!(!links(&mut history, "a", "1", AT));
    drop(history);
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(!links(&mut history, "a", "1", AT));
    // The reconcile itself is still the one before the next.
    assert!(history.last(&subject("a")).is_some());
}

#[test]
fn an_object_that_is_noted_after_it_was_pruned_is_not_believed() {
    let mut history = History::in_process();
    history.forget_stored_until(AT);
    note(&mut history, "a", "1");
    let stored = last("1").object.unwrap();
    let fingerprint = last("1").fingerprint;
    history.object_stored(&subject("a"), fingerprint, stored);
    assert!(!links(&mut history, "a", "1", AT));
}

#[test]
fn an_equal_object_that_is_not_the_one_on_its_way_is_not_linked_to() {
    let mut history = History::in_process();
    note(&mut history, "a", "1");
    let on_its_way = last("1").object.unwrap();
    // Stored late by an earlier process, whose rules of redaction may have been others.
    let other = LastObject {
        key: "v1/reconciles/other".into(),
        ..on_its_way.clone()
    };
    history.object_stored(&subject("a"), last("1").fingerprint, other);
    let linked = history.last(&subject("a")).unwrap().object.clone();
    assert_eq!(linked.unwrap().key, on_its_way.key);
}

#[test]
fn an_object_that_is_lost_is_not_linked_to() {
    let mut history = History::in_process();
    note(&mut history, "a", "1");
    history.object_lost(&subject("a"), Fingerprint::of(b"another"));
    assert!(links(&mut history, "a", "1", AT));
    history.object_lost(&subject("a"), last("1").fingerprint);
    assert!(!links(&mut history, "a", "1", AT));
}

#[test]
fn it_says_nothing_about_another_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    let mut history = History::on_disk(&local_disk(), &path, in_store("s3://other/")).unwrap();
    assert!(!knows(&mut history, "a", "1"));
}

#[test]
fn what_other_rules_redacted_is_not_linked_to_and_still_came_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    let others = Basis {
        redaction: "more".to_owned(),
        ..basis()
    };
    for _ in 0..2 {
        let mut history = History::on_disk(&local_disk(), &path, others.clone()).unwrap();
        assert!(!links(&mut history, "a", "1", AT));
        assert_eq!(history.line(&subject("a")), None);
        let last = history.last(&subject("a")).unwrap();
        assert_eq!(&*last.trace_id, "trace of 1");
    }
}

#[test]
fn an_object_is_stored_anew_after_a_day() {
    let mut history = History::in_process();
    note(&mut history, "a", "1");
    assert!(links(&mut history, "a", "1", AT + Duration::from_hours(23)));
    assert!(!links(
        &mut history,
        "a",
        "1",
        AT + Duration::from_hours(24)
    ));
    assert!(!links(
        &mut history,
        "a",
        "1",
        AT - Duration::from_hours(24)
    ));
    assert!(!links(&mut history, "a", "2", AT));
}

/// Details as large as those of a composite with a dozen resources: what can't be compressed.
fn usual_fields(seed: u64) -> Vec<u8> {
    let mut fields = vec![0; 2_000];
    fastrand::Rng::with_seed(seed).fill(&mut fields);
    fields
}

fn usual_details(seed: u64) -> Arc<Details> {
    Arc::new(Details {
        line: vec![7; 1_000].into(),
        fields: usual_fields(seed).into(),
    })
}

fn note_usual(history: &mut History, index: u64) {
    let name = format!("{index:036}");
    let fields = usual_fields(index);
    history.note(&subject(&name), last(&name), &line("1"), fields);
}

#[test]
fn those_not_seen_for_longest_are_forgotten_first() {
    let mut history = History::in_process();
    let insert = |history: &mut History, name: &str| {
        let ticket = history.ticket;
        let subjects = &mut history.subjects;
        subjects.insert(&subject(name), last("x"), None, ticket);
    };
    insert(&mut history, "seen again");
    let mut index = 0;
    while history.subjects.len() > index {
        index += 1;
        insert(&mut history, &index.to_string());
        assert!(knows(&mut history, "seen again", "x"));
    }
    assert!(!knows(&mut history, "1", "x"));
    assert!(knows(&mut history, &index.to_string(), "x"));
    assert!(history.subjects.len() > 10_000);
}

#[test]
fn however_many_subjects_there_are_memory_is_bounded() {
    for count in [20_000, 100_000] {
        let mut history = History::in_process();
        let mut most = 0;
        for index in 0..count {
            let (name, ticket) = (format!("{index:036}"), history.ticket);
            let details = Some(usual_details(index));
            let subjects = &mut history.subjects;
            subjects.insert(&subject(&name), last(&name), details, ticket);
            most = most.max(subjects.bytes());
        }
        assert!(most <= MAX_BYTES, "{most} bytes with {count} subjects");
        assert_eq!(history.subjects.bytes(), history.subjects.recount());
        // And what there is room for is used.
        assert!(history.subjects.bytes() > MAX_BYTES / 10 * 8);
    }
}

#[test]
fn subjects_that_come_in_turn_keep_what_details_there_is_room_for() {
    const SUBJECTS: u64 = 8_000;
    let mut history = History::in_process();
    let mut known = 0;
    for round in 0..3 {
        known = 0;
        for index in 0..SUBJECTS {
            let name = subject(&format!("{index:036}"));
            if history.last(&name).is_some() && history.line(&name).is_some() {
                known += 1;
            } else {
                note_usual(&mut history, index);
            }
        }
        assert!(round > 0 || known == 0);
    }
    assert_eq!(history.subjects.len() as u64, SUBJECTS);
    let room = history.subjects.detailed();
    assert!(known > room / 2, "{known} known, {room} fit");
}

#[test]
fn details_of_subjects_that_are_gone_make_room() {
    let mut history = History::in_process();
    for index in 0..4_000 {
        note_usual(&mut history, index);
    }
    // These are never seen again; others come in turn.
    for _ in 0..20 {
        for index in 4_000..8_000 {
            let name = subject(&format!("{index:036}"));
            history.last(&name);
            if history.line(&name).is_none() {
                note_usual(&mut history, index);
            }
        }
    }
    let has_details = |index: &u64| {
        let name = subject(&format!("{index:036}"));
        history.line(&name).is_some()
    };
    assert_eq!((4_000..8_000).filter(has_details).count(), 4_000);
    assert!((0..4_000).filter(has_details).count() < 1_000);
}

#[test]
fn a_journal_of_any_length_is_read_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let lines = (0..100_000).map(|index| {
        let name = format!("{index:036}");
        JournalLine {
            subject: subject(&name),
            last: last(&name),
            details: DetailsNote::Known(usual_details(index)),
        }
    });
    drop(
        Journal::write(
            std::sync::Arc::new(crate::disk::LocalDisk),
            path.clone(),
            basis(),
            lines,
        )
        .unwrap(),
    );
    // A line that never ends says nothing, and does not cost those behind it.
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    for _ in 0..32 {
        file.write_all(&vec![b'x'; 1024 * 1024]).unwrap();
    }
    file.write_all(b"\n").unwrap();
    let end = JournalLine {
        subject: subject("end"),
        last: last("end"),
        details: DetailsNote::Unchanged,
    };
    let other = folder.path().join("end.jsonl");
    drop(
        Journal::write(
            std::sync::Arc::new(crate::disk::LocalDisk),
            other.clone(),
            basis(),
            [end].into_iter(),
        )
        .unwrap(),
    );
    let end = fs::read_to_string(other).unwrap();
    file.write_all(end.lines().last().unwrap().as_bytes())
        .unwrap();
    file.write_all(b"\n").unwrap();

    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(history.subjects.bytes() <= MAX_BYTES);
    assert!(knows(&mut history, "end", "end"));
    let newest = format!("{:036}", 99_999);
    assert!(knows(&mut history, &newest, &newest));
    // The file that was written anew lists them in the order in which they were seen.
    let last_line = fs::read_to_string(&path).unwrap();
    assert!(last_line.lines().last().unwrap().contains("\"end\""));
}

#[test]
fn details_that_are_too_large_are_forgotten_after_a_restart_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    let too_large = vec![0; MAX_DETAIL_BYTES];
    history.note(&subject("a"), last("2"), &line("2"), too_large);
    save(&mut history);
    assert_eq!(history.line(&subject("a")), None);
    drop(history);
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(knows(&mut history, "a", "2"));
    // Not those of the reconcile before.
    assert_eq!(history.line(&subject("a")), None);
    assert_eq!(history.fields(&subject("a")), [0_u8; 0]);
}

#[test]
fn details_that_wait_to_be_saved_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    for index in 0..4_096 {
        note_usual(&mut history, index % 8);
    }
    let unsaved = history.unsaved.iter();
    let held: usize = unsaved.map(Unsaved::detail_bytes).sum();
    assert!(held <= MAX_UNSAVED_BYTES, "{held} bytes");
    save(&mut history);
    assert_eq!(history.unsaved_bytes, 0);
    let mut restarted = History::on_disk(&local_disk(), &path, basis()).unwrap();
    // The last of each says that earlier details don't count.
    let name = format!("{:036}", 7);
    assert!(knows(&mut restarted, &name, &name));
    assert_eq!(restarted.line(&subject(&name)), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn bytes_are_counted_as_they_are(
        steps in prop::collection::vec((0_u8..40, 0_u8..4, 0_usize..1_000_000), 1..100)
    ) {
        let mut history = History::in_process();
        for (name, what, size) in steps {
            let name = subject(&name.to_string());
            match what {
                0 => history.note(&name, last("1"), &line("1"), vec![7; size]),
                1 => history.note_again(&name, "x".repeat(size % 500).into(), AT),
                2 => history.object_lost(&name, last("1").fingerprint),
                _ => history.forget_stored_until(AT),
            }
            prop_assert_eq!(history.subjects.bytes(), history.subjects.recount());
            prop_assert!(history.subjects.bytes() <= MAX_BYTES);
        }
    }
}

#[test]
fn the_journal_stays_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    for index in 0..10_000 {
        history.note(
            &subject("a"),
            last(&index.to_string()),
            &line("1"),
            Vec::new(),
        );
        if index % 100 == 0 {
            save(&mut history);
        }
    }
    save(&mut history);
    let lines = fs::read_to_string(&path).unwrap().lines().count();
    assert!(lines < 6_000, "{lines} lines");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(knows(&mut history, "a", "9999"));
}

#[test]
fn the_journal_stays_small() {
    const DETAILS: usize = 512 * 1024;
    let disk = SimulatedDisk::default();
    let mut history = on_simulated(&disk);
    let mut largest = 0;
    for index in 0..64 {
        let mut fields = vec![0; DETAILS];
        fastrand::Rng::with_seed(index).fill(&mut fields);
        let content = index.to_string();
        history.note(&subject("a"), last(&content), &line("1"), fields);
        save(&mut history);
        let length = disk.open(Path::new(PATH)).unwrap().length().unwrap();
        assert_eq!(history.bytes_on_disk(), disk_use(length));
        largest = largest.max(length);
    }
    // All lines together would have 44 MiB; one has less than 1 MiB.
    assert!(largest < 12 * 1024 * 1024, "{largest} bytes");
    drop(history);
    let mut history = on_simulated(&disk);
    assert!(knows(&mut history, "a", "63"));
    assert_eq!(history.fields(&subject("a")).len(), DETAILS);
}

#[test]
fn a_restart_finds_what_came_before_the_first_that_is_not_done_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    let first = history.begin();
    note(&mut history, "a", "1");
    history.begin();
    note(&mut history, "a", "2");
    note(&mut history, "b", "3");
    // What is heard of an object belongs to its reconcile.
    history.object_lost(&subject("b"), last("3").fingerprint);
    history.save(first);
    assert!(!history.has_unsaved(first));
    assert!(knows(&mut history, "a", "2"));

    let mut restarted = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(knows(&mut restarted, "a", "1"));
    assert_eq!(restarted.last(&subject("b")), None);

    let mut history = restarted;
    note(&mut history, "a", "2");
    save(&mut history);
    drop(history);
    let mut restarted = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(knows(&mut restarted, "a", "2"));
}

#[test]
fn writing_the_journal_anew_does_not_run_ahead_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(&local_disk(), &path, basis()).unwrap();
    let first = history.begin();
    note(&mut history, "a", "1");
    history.save(first);
    history.begin();
    note(&mut history, "b", "2");
    history.forget_stored_until(Timestamp::default());
    drop(history);
    let mut restarted = History::on_disk(&local_disk(), &path, basis()).unwrap();
    assert!(knows(&mut restarted, "a", "1"));
    assert_eq!(restarted.last(&subject("b")), None);
}

fn on_simulated(disk: &SimulatedDisk) -> History {
    let disk: crate::disk::SharedDisk = Arc::new(disk.clone());
    History::on_disk(&disk, Path::new(PATH), basis()).unwrap()
}

#[test]
fn what_could_not_be_appended_leaves_no_older_line_to_be_believed() {
    // Of the line that takes back what an earlier one says, as much fits.
    for room in 0..300 {
        let disk = SimulatedDisk::default();
        let mut history = on_simulated(&disk);
        note(&mut history, "a", "1");
        note(&mut history, "b", "2");
        save(&mut history);
        let used = disk.open(Path::new(PATH)).unwrap().length().unwrap();
        disk.set_capacity(Some(used + room));
        history.object_lost(&subject("a"), last("1").fingerprint);
        save(&mut history);
        disk.set_capacity(None);
        history.note_again(&subject("b"), "later".into(), AT);
        save(&mut history);
        drop(history);

        disk.restart(Death::Killed);
        let mut history = on_simulated(&disk);
        assert!(!links(&mut history, "a", "1", AT), "room for {room} bytes");
        // What is said once there is room again is kept.
        let known = history.last(&subject("b")).unwrap();
        assert_eq!(&*known.trace_id, "later", "room for {room} bytes");
    }
}

#[test]
fn a_journal_that_can_not_be_written_is_removed_and_tried_again() {
    let disk = SimulatedDisk::default();
    let mut history = on_simulated(&disk);
    note(&mut history, "a", "1");
    save(&mut history);
    disk.fail_next(&[Fault::Rename]);
    history.forget_stored_until(AT + Duration::from_secs(1));
    assert_eq!(disk.file_names(), [""; 0]);
    assert_eq!(history.bytes_on_disk(), 0);
    note(&mut history, "b", "2");
    save(&mut history);
    drop(history);
    disk.restart(Death::PowerFailure);
    let mut history = on_simulated(&disk);
    assert!(!links(&mut history, "a", "1", AT));
    assert!(history.last(&subject("a")).is_some());
    assert!(knows(&mut history, "b", "2"));
}

/// Data directories of earlier versions, with the last reconcile of each subject in them.
const EARLIER: [(&str, &[(&str, &str)]); 2] = [
    (
        "v0.1",
        &[(
            "e343eeff-810a-4289-b8c1-3dcc956200e4",
            "1cbf6e81-c881-1237-178d-e07b66014f67",
        )],
    ),
    (
        "v0.2-dev",
        &[
            (
                "8731d9ea-0cc6-472d-a297-630a1437d383",
                "b070cb79-35fe-574d-0e57-c55793d65d5b",
            ),
            (
                "123706a0-e05b-4be5-9728-9266931d4736",
                "f936c509-28a1-83f5-4803-f822eee0ffc8",
            ),
            (
                "e343eeff-810a-4289-b8c1-3dcc956200e4",
                "32721bd1-c8e2-bedc-70d2-270eefc4e57d",
            ),
        ],
    ),
];

/// A copy of the history of an earlier version, and what it is true of.
fn history_of(version: &str, path: &Path) -> Basis {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let journal = fixtures.join(version).join("data/history.jsonl");
    let journal = fs::read_to_string(journal).unwrap();
    fs::write(path, &journal).unwrap();
    serde_json::from_str(journal.lines().next().unwrap()).unwrap()
}

#[test]
fn what_earlier_versions_knew_is_believed() {
    for (version, subjects) in EARLIER {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let basis = history_of(version, &path);
        let mut history = History::on_disk(&local_disk(), &path, basis).unwrap();
        assert_eq!(history.subjects.len(), subjects.len(), "{version}");
        for (name, trace_id) in subjects {
            let last = history.last(&subject(name)).unwrap().clone();
            assert_eq!(&*last.trace_id, *trace_id);
            let object = last.object.unwrap();
            assert!(object.bytes > 0 && object.stored_at.is_none(), "{object:?}");
            let line = history.line(&subject(name)).unwrap();
            assert_eq!(line.object.key, *object.key, "{version}");
        }
    }
}

#[test]
fn what_other_rules_redacted_in_earlier_versions_is_forgotten() {
    for (version, subjects) in EARLIER {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        // They did not say by which rules.
        let Basis { store, redaction } = history_of(version, &path);
        assert_eq!(redaction, "");
        let mut history = History::on_disk(&local_disk(), &path, in_store(&store)).unwrap();
        for (name, trace_id) in subjects {
            let last = history.last(&subject(name)).unwrap();
            assert_eq!((&*last.trace_id, &last.object), (*trace_id, &None));
            assert_eq!(history.line(&subject(name)), None);
        }
    }
}

#[test]
fn what_the_last_version_knew_is_believed_by_the_same_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let basis = history_of("v0.3-dev", &path);
    assert_ne!(basis.redaction, "");
    let mut history = History::on_disk(&local_disk(), &path, basis).unwrap();
    let finder = subject("e343eeff-810a-4289-b8c1-3dcc956200e4");
    let object = history.last(&finder).unwrap().object.clone().unwrap();
    assert_eq!(history.line(&finder).unwrap().object.key, *object.key);
    // Some objects were in the store.
    let known = history.subjects.oldest_first().into_iter();
    let stored = known.filter(|(_, entry)| {
        let object = entry.last.object.as_ref();
        object.is_some_and(|object| object.stored_at.is_some())
    });
    assert!(stored.count() > 0);
}
