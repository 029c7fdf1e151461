//! What is remembered, for how long, and what of it survives.

use std::{fs, io::Write as _};

use super::*;
use crate::line::samples;

const STORE: &str = "s3://bucket/";
const AT: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

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

#[test]
fn it_survives_a_restart_and_a_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(path.clone(), STORE).unwrap();
    for (name, content) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
        note(&mut history, name, content);
    }
    save(&mut history);
    drop(history);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(br#"{"subject":"c","trace_id":"tor"#)
        .unwrap();

    let mut history = History::on_disk(path, STORE).unwrap();
    assert!(knows(&mut history, "a", "2"));
    assert!(knows(&mut history, "b", "3"));
    assert!(knows(&mut history, "c", "4"));
    assert_eq!(history.line(&subject("c")), Some(line("4")));
    assert_eq!(history.fields(&subject("c")), [1, 2]);
}

#[test]
fn the_same_again_keeps_the_details_and_moves_the_trace_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(path.clone(), STORE).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    history.note_again(&subject("a"), "second".into(), AT);
    history.note_again(&subject("a"), "third".into(), AT);
    // Done once more after a crash.
    history.note_again(&subject("a"), "third".into(), AT);
    save(&mut history);
    drop(history);
    let mut history = History::on_disk(path, STORE).unwrap();
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
    let mut history = History::on_disk(path.clone(), STORE).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    assert!(links(&mut history, "a", "1", AT));
    history.forget_stored_until(AT + Duration::from_secs(1));
    assert!(!links(&mut history, "a", "1", AT));
    drop(history);
    let mut history = History::on_disk(path, STORE).unwrap();
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
    let mut history = History::on_disk(path.clone(), STORE).unwrap();
    note(&mut history, "a", "1");
    save(&mut history);
    let mut history = History::on_disk(path, "s3://other/").unwrap();
    assert!(!knows(&mut history, "a", "1"));
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

#[test]
fn those_not_seen_for_longest_are_forgotten_first() {
    let mut history = History::in_process();
    for index in 0..MAX_SUBJECTS {
        history.insert(subject(&index.to_string()), last("x"), None);
    }
    assert!(knows(&mut history, "0", "x"));
    history.insert(subject("one more"), last("x"), None);
    assert!(history.subjects.len() < MAX_SUBJECTS);
    assert!(knows(&mut history, "0", "x"));
    assert!(!knows(&mut history, "1", "x"));
}

#[test]
fn details_go_before_the_rest_once_they_take_too_much() {
    let mut history = History::in_process();
    let details = Details {
        line: vec![0; MAX_DETAIL_BYTES / 10].into(),
        fields: Box::default(),
    };
    for index in 0..11 {
        history.insert(
            subject(&index.to_string()),
            last("x"),
            Some(details.clone()),
        );
    }
    assert!(history.detail_bytes <= MAX_DETAIL_BYTES);
    assert_eq!(history.subjects.len(), 11);
    let has_details = |name: &str| history.subjects[&subject(name)].details.is_some();
    assert!(!has_details("0") && has_details("10"));
    let counted: usize = history
        .subjects
        .values()
        .filter_map(|entry| entry.details.as_ref().map(Details::bytes))
        .sum();
    assert_eq!(counted, history.detail_bytes);
}

#[test]
fn the_journal_stays_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(path.clone(), STORE).unwrap();
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
    let mut history = History::on_disk(path, STORE).unwrap();
    assert!(knows(&mut history, "a", "9999"));
}

#[test]
fn a_restart_finds_what_came_before_the_first_that_is_not_done_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(path.clone(), STORE).unwrap();
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

    let mut restarted = History::on_disk(path.clone(), STORE).unwrap();
    assert!(knows(&mut restarted, "a", "1"));
    assert_eq!(restarted.last(&subject("b")), None);

    let mut history = restarted;
    note(&mut history, "a", "2");
    save(&mut history);
    drop(history);
    let mut restarted = History::on_disk(path, STORE).unwrap();
    assert!(knows(&mut restarted, "a", "2"));
}

#[test]
fn writing_the_journal_anew_does_not_run_ahead_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut history = History::on_disk(path.clone(), STORE).unwrap();
    let first = history.begin();
    note(&mut history, "a", "1");
    history.save(first);
    history.begin();
    note(&mut history, "b", "2");
    history.forget_stored_until(Timestamp::default());
    drop(history);
    let mut restarted = History::on_disk(path, STORE).unwrap();
    assert!(knows(&mut restarted, "a", "1"));
    assert_eq!(restarted.last(&subject("b")), None);
}
