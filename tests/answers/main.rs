//! Questions that people ask, on what a real Crossplane emitted: stored by the real sidecar, read
//! back through the archive alone.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use spanplane::{
    answers::{
        Answers, Fate, FindError, Mark, Matrix, Pipeline, Reason, Reference, Scope, Sequel,
        StoredDocument, Story, tell_fate,
    },
    archive::Query,
    line::Line,
};

use crate::support::{Home, capture};

/// A store with everything that these captures hold.
async fn stored(captures: &[&str]) -> (Home, Answers) {
    let home = Home::new();
    for name in captures {
        home.play(&[], &capture(name)).await;
    }
    let answers = Answers::new(home.archive());
    (home, answers)
}

/// All reconciles, oldest first.
async fn all_lines(answers: &Answers) -> Vec<Line> {
    let mut lines: Vec<_> = answers
        .lines(Query::default())
        .map(Result::unwrap)
        .collect()
        .await;
    lines.reverse();
    lines
}

fn names(names: &[String]) -> BTreeSet<&str> {
    names.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn payloads_say_what_the_index_says() {
    let (_home, answers) = stored(&[
        "network",
        "dropper",
        "requirements",
        "secrets",
        "steady-start",
        "broken",
    ])
    .await;
    let mut fates: BTreeMap<&str, usize> = BTreeMap::new();
    for line in all_lines(&answers).await {
        let stored = answers.payloads(&line).await.unwrap();
        let document = stored.open().unwrap();
        let pipeline = Pipeline::read(&line, &document);
        let matrix = Matrix::of(&pipeline);
        for (place, step) in line.steps.iter().enumerate() {
            let Some(told) = step
                .facts
                .desired
                .as_ref()
                .filter(|_| !step.status.is_failure())
            else {
                continue;
            };
            let marked = |mark| {
                let rows = matrix
                    .resources()
                    .filter(move |row| row.cells[place].mark == mark);
                rows.map(|row| row.name).collect::<BTreeSet<_>>()
            };
            assert_eq!(marked(Mark::Added), names(&told.added), "{}", line.trace_id);
            assert_eq!(
                marked(Mark::Changed),
                names(&told.changed),
                "{}",
                line.trace_id
            );
            assert_eq!(
                marked(Mark::Dropped),
                names(&told.removed),
                "{}",
                line.trace_id
            );
            let ready = matrix
                .resources()
                .filter(|row| row.cells[place].ready == Some(true));
            assert_eq!(ready.count() as u64, told.ready, "{}", line.trace_id);
        }
        for row in matrix.resources() {
            *fates.entry(row.fate.as_str()).or_default() += 1;
        }
        let doomed = |fate| {
            let rows = matrix.resources().filter(move |row| row.fate == fate);
            rows.map(|row| row.name).collect::<BTreeSet<_>>()
        };
        assert_eq!(
            doomed(Fate::Create),
            names(&line.resources.create),
            "{}",
            line.trace_id
        );
        // The line tells by fields alone: what is being deleted while it is desired is updated or
        // left as it is there, and an outcome of its own here.
        let recreated = doomed(Fate::Recreate);
        let updated = names(&line.resources.update);
        let to_recreate = updated.intersection(&recreated).count();
        assert_eq!(
            doomed(Fate::Update),
            &updated - &recreated,
            "{}",
            line.trace_id
        );
        assert_eq!(
            doomed(Fate::Delete),
            names(&line.resources.delete),
            "{}",
            line.trace_id
        );
        assert_eq!(
            (doomed(Fate::Keep).len() + recreated.len() - to_recreate) as u64,
            line.resources.unchanged,
            "{}",
            line.trace_id
        );
    }
    let known: Vec<_> = fates.keys().copied().collect();
    assert_eq!(
        known,
        [
            "create", "delete", "keep", "never", "recreate", "unknown", "update"
        ],
        "{fates:?}"
    );
}

#[tokio::test]
async fn a_dropped_resource_has_its_story_and_its_sequel() {
    let (_home, answers) = stored(&["dropper"]).await;
    let lines = all_lines(&answers).await;
    let is_dropping = |line: &&Line| line.dropped.iter().any(|dropped| dropped.observed);
    let line = lines.iter().find(is_dropping).unwrap();
    let stored = answers.payloads(line).await.unwrap();
    let document = stored.open().unwrap();
    let pipeline = Pipeline::read(line, &document);
    let story = Story::of(&pipeline, "bucket-b");
    let marks: Vec<_> = story
        .moments
        .iter()
        .map(|moment| moment.cell.mark)
        .collect();
    assert_eq!(marks[..2], [Mark::Added, Mark::Dropped]);
    assert_eq!(
        (story.fate, &story.reason),
        (Fate::Delete, &Reason::Dropped { by: 1 })
    );

    let next = answers.next_of(line).await.unwrap().unwrap();
    let place = lines
        .iter()
        .position(|other| other.trace_id == line.trace_id)
        .unwrap();
    assert_eq!(next.trace_id, lines[place + 1].trace_id);
    assert_eq!(
        answers.previous_of(&next).await.unwrap().unwrap().trace_id,
        line.trace_id
    );
    let stored = answers.payloads(&next).await.unwrap();
    let document = stored.open().unwrap();
    let next = Pipeline::read(&next, &document);
    assert_eq!(
        Sequel::of(&pipeline, Some(&next), "bucket-b"),
        Sequel::Confirmed
    );
    assert_eq!(Sequel::of(&pipeline, None, "bucket-b"), Sequel::NotSeen);
    assert!(Story::of(&pipeline, "bucket-z").is_unheard_of());
}

#[tokio::test]
async fn who_asked_for_a_resource_is_who_added_it() {
    let (_home, answers) = stored(&["dropper"]).await;
    let lines = all_lines(&answers).await;
    let creates = |line: &&Line| line.resources.create.contains(&"bucket-a".to_owned());
    let line = lines.iter().find(creates).unwrap();
    let stored = answers.payloads(line).await.unwrap();
    let document = stored.open().unwrap();
    let pipeline = Pipeline::read(line, &document);
    let story = Story::of(&pipeline, "bucket-a");
    // Another step changes it later.
    assert_eq!(story.moments[2].cell.mark, Mark::Changed);
    assert_eq!(story.reason, Reason::AskedFor { by: 0 });
}

#[tokio::test]
async fn what_is_deleted_while_it_is_desired_comes_again() {
    let (_home, answers) = stored(&["dropper"]).await;
    let lines = all_lines(&answers).await;
    let line = lines
        .iter()
        .find(|line| line.resources.unchanged > 0)
        .unwrap();
    let stored = answers.payloads(line).await.unwrap();
    let told = |stored: &StoredDocument| {
        let document = stored.open().unwrap();
        let pipeline = Pipeline::read(line, &document);
        let story = Story::of(&pipeline, "bucket-a");
        (story.fate, tell_fate(&story, line))
    };
    assert_eq!(told(&stored).0, Fate::Keep);

    let observing = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut document: serde_json::Value = serde_json::from_str(stored.text()).unwrap();
        let resources = "/steps/0/request/observed/resources";
        change(document.pointer_mut(resources).unwrap());
        StoredDocument::new(document.to_string().into_bytes()).unwrap()
    };
    let deleted = observing(&|resources| {
        let metadata = &mut resources["bucket-a"]["resource"]["metadata"];
        metadata["deletionTimestamp"] = "2026-11-16T04:36:46Z".into();
    });
    let words =
        "It is being deleted, though it is desired: once it is gone, it will be created again.";
    assert_eq!(told(&deleted), (Fate::Recreate, words.to_owned()));

    let another = observing(&|resources| {
        resources["bucket-a"]["resource"]["metadata"]["uid"] = "new".into();
    });
    let gone = observing(&|resources| {
        resources.as_object_mut().unwrap().remove("bucket-a");
    });
    for (next, expected) in [
        (&deleted, Sequel::BeingDeleted),
        (&another, Sequel::Confirmed),
        (&gone, Sequel::Confirmed),
        (&stored, Sequel::Refuted),
    ] {
        let documents = (deleted.open().unwrap(), next.open().unwrap());
        let pipeline = Pipeline::read(line, &documents.0);
        let next = Pipeline::read(line, &documents.1);
        assert_eq!(Sequel::of(&pipeline, Some(&next), "bucket-a"), expected);
    }
}

#[tokio::test]
async fn reconciles_are_found_by_what_people_call_them() {
    let (_home, answers) = stored(&["dropper", "secrets"]).await;
    let lines = all_lines(&answers).await;
    let find = async |reference: &str| {
        let reference: Reference = reference.parse().unwrap();
        answers.find(&reference, &Scope::default()).await
    };
    let newest = |kind: &str| {
        lines
            .iter()
            .rfind(|line| line.subject.kind == kind)
            .unwrap()
    };
    assert_eq!(find("last").await.unwrap(), *lines.last().unwrap());
    assert_eq!(
        find("bucketset/assets").await.unwrap(),
        *newest("BucketSet")
    );
    let some = &lines[3];
    assert_eq!(find(&some.trace_id).await.unwrap(), *some);
    assert_eq!(find(&some.otel_trace_id).await.unwrap(), *some);
    assert_eq!(find(some.trace_id.get(..12).unwrap()).await.unwrap(), *some);
    assert!(matches!(find("").await, Err(FindError::Ambiguous { .. })));
    assert!(matches!(find("zzzz").await, Err(FindError::NoTrace(_))));
    assert!(matches!(
        find("bucketset/nope").await,
        Err(FindError::NoSubject(_))
    ));
}
