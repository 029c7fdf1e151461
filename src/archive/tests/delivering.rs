//! How parts find each other.

use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;

/// Long after everything.
const LATER: i64 = 10_000;

#[tokio::test]
async fn a_whole_that_ended_just_now_is_created_without_a_look() {
    let place = Place::in_memory(1);
    let delivered = place.process(-10).at(5).send(0..4).await.unwrap();
    assert_eq!(place.store.take_asked(), [Asked::Create]);
    assert_eq!(delivered.label.line.revision, 0);
    assert_eq!(place.only_steps().await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn what_may_have_been_stored_in_part_is_looked_for() {
    type Make = fn(&Place) -> Process;
    let (list, create) = (Asked::List, Asked::Create);
    let cases: [(Make, &[Asked]); 4] = [
        // It ended long ago, ends in the future, or is of an earlier process.
        (|place| place.process(-10).at(60), &[list, create, list]),
        (|place| place.process(-10).at(-60), &[list, create, list]),
        (|place| place.process(1).at(5), &[list, create, list]),
        // The process is stopping.
        (|place| place.process(-10).at(5).draining(), &[create, list]),
    ];
    for (make, expected) in cases {
        let place = Place::in_memory(1);
        make(&place).send(0..4).await.unwrap();
        assert_eq!(place.store.take_asked(), expected);
    }
    let place = Place::in_memory(1);
    let large = noise();
    let mut process = place.process_with(-10, Compression::None).at(5);
    process.send_padded(0..2, &large).await.unwrap();
    let expected = [Asked::List, Asked::Parts, Asked::Get, Asked::List];
    assert_eq!(place.store.take_asked(), expected);
}

/// Four payloads of this size are more than goes whole.
fn noise() -> String {
    "x".repeat(1_400_000)
}

#[tokio::test]
async fn a_late_part_joins_its_reconcile_whatever_the_size_and_the_store() {
    for (place, padding) in [
        (Place::in_memory(1), String::new()),
        (Place::on_disk(1), String::new()),
        (Place::in_memory(1), noise()),
        (Place::on_disk(1), noise()),
    ] {
        let process = || place.process_with(-10, Compression::None).at(5);
        process().send_padded(0..2, &padding).await.unwrap();
        let delivered = process().send_padded(2..4, &padding).await.unwrap();
        assert_complete(&delivered.label.line, 4, 1);
        let documents = place.documents().await;
        assert_eq!(documents.len(), 1);
        let (key, document) = &documents[0];
        assert_eq!(delivered.label.line.object.key, key.as_str());
        assert_eq!(document["revision"], 1);
        for step in document["steps"].as_array().unwrap() {
            assert_eq!(
                step["request"]["padding"].as_str().unwrap().len(),
                padding.len()
            );
        }
        // Done again after a crash.
        let again = process().send_padded(2..4, &padding).await.unwrap();
        assert_eq!(again.label.line, delivered.label.line);
        assert_eq!(place.documents().await, documents);
    }
}

#[tokio::test]
async fn a_part_waits_for_its_beginning_but_not_forever() {
    let place = Place::in_memory(1);
    let mut process = place.process(-10).at(4);
    for second in [4, 30, 60, 92] {
        process = process.at(second);
        let early = process.send(2..4).await;
        assert!(matches!(early, Err(UploadError::Early)), "{early:?}");
        assert_eq!(place.documents().await, []);
    }
    process.at(93).send(2..4).await.unwrap();
    assert_eq!(place.only_steps().await, [2, 3]);
    // It comes all the same, and the part goes where the beginning is said to be.
    let mut process = place.process(-10).at(LATER);
    let delivered = process.send(0..2).await.unwrap();
    assert_complete(&delivered.label.line, 4, 1);
    let (key, _) = place.documents().await.remove(0);
    assert_eq!(delivered.label.line.object.key, key.as_str());
    assert!(key.as_str().contains("/040000.000-"), "{key}");
    assert_eq!(place.only_steps().await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_part_waits_for_its_beginning_whatever_the_clock_is_set_to() {
    for clock in [-LATER, 4, LATER] {
        let place = Place::in_memory(1);
        let mut process = place.process(-2 * LATER).at(clock).failing_for(0);
        for seconds in [0, 89] {
            process = process.failing_for(seconds);
            let early = process.send(2..4).await;
            assert!(matches!(early, Err(UploadError::Early)), "{early:?}");
        }
        // Another sidecar, whose clock is right, stores it and does not look for more.
        place.process(-10).at(5).send(0..2).await.unwrap();
        let delivered = process.failing_for(90).send(2..4).await.unwrap();
        assert_complete(&delivered.label.line, 4, 1);
        assert_eq!(place.only_steps().await, [0, 1, 2, 3]);
    }
}

#[tokio::test]
async fn a_stop_waits_for_a_beginning_that_is_about_to_come() {
    let place = Place::in_memory(1);
    let mut stopping = place.process(-10).at(4).draining();
    let early = stopping.send(2..4).await;
    assert!(matches!(early, Err(UploadError::Early)), "{early:?}");
    // Another sidecar stores it, and has no reason to look for more.
    place.process(-10).at(5).send(0..2).await.unwrap();
    let delivered = stopping.at(6).send(2..4).await.unwrap();
    assert_complete(&delivered.label.line, 4, 1);
    assert_eq!(place.only_steps().await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_beginning_for_long() {
    let place = Place::in_memory(1);
    let stopping = place.process(-10).at(4).draining();
    stopping.at(7).send(2..4).await.unwrap();
    assert_eq!(place.only_steps().await, [2, 3]);
}

#[tokio::test]
async fn a_reconcile_sent_again_with_another_compression_stays_one_object() {
    let place = Place::in_memory(1);
    let mut first = place.process_with(-10, Compression::Gzip).at(5);
    first.send(0..2).await.unwrap();
    let mut restarted = place.process_with(6, Compression::Zstd).at(7);
    let again = restarted.send(0..2).await.unwrap();
    assert_eq!(again.label.line.revision, 0);
    let key = Key::of_stored(&again.label.line.object.key).unwrap();
    assert_eq!(Compression::of_key(key.as_str()), Compression::Gzip);
    let late = restarted.send(2..3).await.unwrap();
    assert_complete(&late.label.line, 3, 1);
    assert_eq!(place.only_steps().await, [0, 1, 2]);
}

#[tokio::test]
async fn two_objects_of_one_reconcile_become_one() {
    for place in [Place::in_memory(1), Place::on_disk(1)] {
        // As an earlier version left them.
        for steps in [0..2, 3..5] {
            let elsewhere = Place::in_memory(1);
            elsewhere.process(-10).at(LATER).send(steps).await.unwrap();
            let (key, _) = elsewhere.documents().await.remove(0);
            let stored = elsewhere.store.get(&key.as_str().into()).await.unwrap();
            let body = stored.bytes().await.unwrap();
            place.put(key.as_str(), body).await;
        }
        let mut process = place.process(-10).at(LATER);
        let delivered = process.send(2..3).await.unwrap();
        assert_complete(&delivered.label.line, 5, 2);
        assert_eq!(place.only_steps().await, [0, 1, 2, 3, 4]);
    }
}

#[tokio::test]
async fn what_may_not_be_removed_says_where_its_content_went() {
    let place = Place::in_memory(1);
    let mut process = place.process(-10).at(LATER).draining();
    process.send(0..4).await.unwrap();
    let (whole, document) = place.documents().await.remove(0);
    // Another object, that began a second later.
    let other = whole.as_str().replace("040000", "040001");
    let other = other.replace(".zst", "");
    place.put(&other, document.to_string().into_bytes()).await;
    place.store.deny(&[Asked::Delete]);
    let delivered = process.send(4..5).await.unwrap();
    assert_complete(&delivered.label.line, 5, 2);
    assert_eq!(delivered.label.line.object.key, whole.as_str());
    let note = async || {
        let documents = place.documents().await;
        let mut notes = documents.iter().filter(|(key, _)| key.as_str() == other);
        notes.next().unwrap().1["moved_to"].clone()
    };
    assert_eq!(note().await, whole.as_str());
    // Whoever may remove it does, whether it was denied or the process was killed.
    place.store.deny(&[]);
    let delivered = process.send(5..6).await.unwrap();
    assert_complete(&delivered.label.line, 6, 3);
    assert_eq!(place.only_steps().await, [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_file_that_was_replaced_meanwhile_is_not_replaced_again() {
    let place = Place::on_disk(1);
    let mut first = place.process(-10).at(5);
    let key = first.send(0..2).await.unwrap().label.line.object.key;
    let version = async || {
        let meta = place.store.head(&key.as_str().into()).await.unwrap();
        meta.e_tag.unwrap()
    };
    let before = version().await;
    first.send(2..3).await.unwrap();
    assert_ne!(version().await, before);
}

#[tokio::test]
async fn without_leave_to_read_parts_are_stored_beside_each_other() {
    for denied in [&[Asked::List][..], &[Asked::List, Asked::Get]] {
        let place = Place::in_memory(1);
        place.store.deny(denied);
        // That may be for a moment only.
        let early = place.process(-10).at(LATER).send(0..2).await;
        assert!(matches!(early, Err(UploadError::Early)), "{early:?}");
        let mut process = place.process(-10).at(LATER).denied_before();
        process.send(0..2).await.unwrap();
        let late = process.send(2..4).await.unwrap();
        assert!(late.label.line.object.key.contains("-part-"));
        assert_eq!(late.label.line.revision, 0);
        place.store.deny(&[]);
        let documents = place.documents().await;
        let mut steps: Vec<_> = documents.iter().map(|(_, it)| steps_of(it)).collect();
        steps.sort_unstable();
        assert_eq!(steps, [[0, 1], [2, 3]]);
    }
}

#[tokio::test]
async fn what_can_be_read_and_not_listed_is_joined_if_its_key_is_known() {
    let place = Place::in_memory(1);
    place.store.deny(&[Asked::List]);
    let mut process = place.process(-10).at(5).denied_before();
    process.send(0..2).await.unwrap();
    let more = process.send(0..4).await.unwrap();
    assert_complete(&more.label.line, 4, 1);
    place.store.deny(&[]);
    assert_eq!(place.only_steps().await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_damaged_object_is_left_alone() {
    let place = Place::in_memory(1);
    let key = label(&(0..2), Compression::Zstd).line.object.key;
    place.put(&key, &b"no zstd"[..]).await;
    let late = place.process(-10).at(LATER).send(2..4).await.unwrap();
    assert!(late.label.line.object.key.contains("-part-"));
    let damaged = place.store.get(&key.as_str().into()).await.unwrap();
    assert_eq!(damaged.bytes().await.unwrap(), &b"no zstd"[..]);
}

/// Sends parts from a process each, all at once.
async fn send_at_once(place: &Place, parts: &[Range<u8>], padding: &str) -> Vec<Line> {
    let mut sending = JoinSet::new();
    for part in parts {
        // It has been stopping for too long to wait for anything.
        let process = place.process_with(-10, Compression::None).at(0).draining();
        let mut process = process.at(5);
        let shipment = process.seal(part, padding);
        let send = async move {
            // All of it: the parcel goes with its process.
            let process = process;
            let delivered = deliver(&process.shared, &shipment).await;
            delivered.unwrap().label.line
        };
        sending.spawn(send);
    }
    sending.join_all().await
}

/// One object holds everything, and the highest revision that was told says so.
async fn assert_one(place: &Place, lines: &[Line], steps: u8) {
    let expected: Vec<_> = (0..i64::from(steps)).collect();
    assert_eq!(place.only_steps().await, expected);
    let (key, document) = place.documents().await.remove(0);
    let best = lines.iter().max_by_key(|line| line.revision).unwrap();
    assert_eq!(best.steps.len(), expected.len());
    assert_eq!(best.object.key, key.as_str());
    assert_eq!(document["revision"], best.revision);
}

#[tokio::test]
async fn processes_that_add_to_a_large_file_at_once_lose_nothing() {
    for seed in 1..=3 {
        let place = Place::on_disk(seed);
        let padding = noise();
        let mut first = place.process_with(-10, Compression::None).at(5);
        let whole = first.send_padded(0..2, &padding).await.unwrap();
        let parts = [2..3, 3..4, 4..5];
        let mut lines = send_at_once(&place, &parts, &padding).await;
        lines.push(whole.label.line);
        assert_one(&place, &lines, 5).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn processes_that_send_parts_at_once_leave_one_object(
        seed: u64,
        is_on_disk: bool,
        cuts in prop::collection::btree_set(1..6_u8, 1..4),
    ) {
        let place = if is_on_disk {
            Place::on_disk(seed)
        } else {
            Place::in_memory(seed)
        };
        let ends = cuts.iter().copied().chain([6]);
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let parts: Vec<_> = starts.zip(ends).map(|(start, end)| start..end).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let lines = send_at_once(&place, &parts, "").await;
            assert_one(&place, &lines, 6).await;
        });
    }
}
