//! Parcels and batches through restarts and damage.

use std::{collections::BTreeSet, fs, io::Write as _, sync::Arc};

use opentelemetry_proto::tonic::{resource::v1::Resource, trace::v1::Span};

use super::*;
use crate::{
    disk::{LocalDisk, SharedDisk, disk_use},
    fingerprint::Fingerprint,
    line::samples,
    pack::pack,
    reconcile::Subject,
    spans::{EncodedSpans, SpanBatch},
    time::Timestamp,
};

/// The least that a file takes on disk.
const BLOCK: u64 = 4096;

fn disk() -> SharedDisk {
    Arc::new(LocalDisk)
}

fn label(trace_id: &str, is_fragment: bool) -> Label {
    Label {
        subject: Subject::default(),
        is_fragment,
        fingerprint: Fingerprint::of(trace_id.as_bytes()),
        line: samples::line(trace_id, Timestamp::default()),
        beginning: None,
    }
}

fn seal(parcels: &mut Parcels, trace_id: &str, is_fragment: bool) -> ParcelId {
    let mut parcel = parcels.begin().unwrap();
    parcel.write_all(b"body of ").unwrap();
    parcel.write_all(trace_id.as_bytes()).unwrap();
    let label = label(trace_id, is_fragment);
    parcels.seal(parcel, &label, Timestamp::default()).unwrap()
}

fn sendable(parcels: &Parcels) -> Vec<ParcelId> {
    let sendable = parcels.sendable(ParcelId::default());
    sendable.map(|(id, _)| id).collect()
}

#[test]
fn a_parcel_reads_back_as_it_was_packed_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    let id = seal(&mut parcels, "a", false);
    // Never sealed, so never sent.
    parcels.begin().unwrap().write_all(b"half").unwrap();
    parcels.sync().unwrap();
    drop(parcels);

    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    assert_eq!(sendable(&parcels), [id]);
    let mut parcel = parcels.read(id).unwrap();
    assert_eq!(parcel.label, label("a", false));
    assert_eq!(parcel.next_part(4).unwrap(), b"body");
    assert_eq!(parcel.next_part(100).unwrap(), b" of a");
    assert_eq!(parcel.next_part(100).unwrap(), b"");
    parcel.rewind();
    assert_eq!(parcel.next_part(100).unwrap(), b"body of a");
    parcels.finish(id);
    assert!(parcels.is_empty() && parcels.has_finished());
    assert!(parcels.path_of(id).try_exists().unwrap());
    parcels.remove_finished();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_was_sealed_before_a_crash_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    let id = seal(&mut parcels, "a", false);
    drop(parcels);
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    assert_eq!(parcels.find("a", Fingerprint::of(b"a")), Some(id));
    assert_eq!(parcels.find("a", Fingerprint::of(b"b")), None);
    parcels.finish(id);
    assert_eq!(parcels.find("a", Fingerprint::of(b"a")), None);
    // What this process seals is not done again.
    seal(&mut parcels, "b", false);
    assert_eq!(parcels.find("b", Fingerprint::of(b"b")), None);
}

#[test]
fn a_body_that_is_damaged_is_not_believed_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    let id = seal(&mut parcels, "a", false);
    let path = parcels.path_of(id);
    drop(parcels);
    let whole = fs::read(&path).unwrap();
    for at in 0..b"body of a".len() {
        let mut damaged = whole.clone();
        damaged[at] = 0;
        fs::write(&path, damaged).unwrap();
        let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
        assert_eq!(sendable(&parcels), [id]);
        assert_eq!(parcels.find("a", Fingerprint::of(b"a")), None, "byte {at}");
        // It is gone once it has been made again.
        let again = seal(&mut parcels, "a", false);
        assert_eq!(sendable(&parcels), [again]);
        parcels.remove_finished();
        assert!(!path.try_exists().unwrap());
        fs::remove_file(parcels.path_of(again)).unwrap();
    }
}

#[test]
fn a_parcel_of_an_earlier_version_has_no_checksum_and_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let label = pack(&serde_json::to_vec(&label("a", false)).unwrap()).unwrap();
    let length = u32::try_from(label.len()).unwrap().to_le_bytes();
    let crc = crc32fast::hash(&label).to_le_bytes();
    let parcel = [b"body of a", &label[..], &length, &crc, b"SPPARCL1"].concat();
    fs::write(folder.path().join("00000000000000000007.parcel"), parcel).unwrap();
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    let id = parcels.find("a", Fingerprint::of(b"a")).unwrap();
    let mut parcel = parcels.read(id).unwrap();
    assert_eq!(parcel.body_crc32, None);
    assert_eq!(parcel.next_part(100).unwrap(), b"body of a");
}

#[test]
fn a_late_part_waits_for_what_it_belongs_to_and_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    let stuck = seal(&mut parcels, "stuck", false);
    let whole = seal(&mut parcels, "a", false);
    let late = seal(&mut parcels, "a", true);
    let later = seal(&mut parcels, "a", true);
    let alone = seal(&mut parcels, "b", true);
    assert_eq!(sendable(&parcels), [stuck, whole, alone]);
    assert_eq!(parcels.first_follower(), Some(late));
    parcels.finish(whole);
    assert_eq!(sendable(&parcels), [stuck, late, alone]);
    parcels.finish(late);
    assert_eq!(sendable(&parcels), [stuck, later, alone]);
}

#[test]
fn a_late_part_waits_for_what_was_sealed_again_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    let late = seal(&mut parcels, "a", true);
    // The power failed, and it was done again.
    let whole = seal(&mut parcels, "a", false);
    let other = seal(&mut parcels, "b", true);
    drop(parcels);

    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    assert_eq!(sendable(&parcels), [whole, other]);
    parcels.finish(whole);
    assert_eq!(sendable(&parcels), [late, other]);
    assert!(parcels.read(late).unwrap().label.is_fragment);
}

fn note(what: &str) -> Note {
    Note {
        what: what.to_owned(),
        reason: "too large".to_owned(),
        since: Timestamp::default(),
    }
}

/// A quarantine, and the folder of what waits beside it.
fn with_quarantine(max_bytes: u64) -> (tempfile::TempDir, Quarantine) {
    let folder = tempfile::tempdir().unwrap();
    let quarantine = Quarantine::open(disk(), folder.path().join("quarantine"), max_bytes).unwrap();
    (folder, quarantine)
}

#[test]
fn what_is_set_aside_can_be_listed_and_taken_back() {
    let (folder, quarantine) = with_quarantine(1 << 20);
    let home = folder.path().join("quarantine");
    let mut parcels = Parcels::open(disk(), folder.path().join("objects")).unwrap();
    let id = seal(&mut parcels, "a", false);
    let take = |path: &Path| quarantine.take(Quarantinable::Object, path, &note("a key"));
    parcels.set_aside(id, take).unwrap();
    assert!(parcels.is_empty() && !parcels.has_finished());
    assert_eq!(parcels.bytes(), 0);

    // Another process.
    let listed = Quarantine::list(&LocalDisk, &home).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].note(&LocalDisk), Some(note("a key")));
    assert_eq!(quarantine.bytes(), [disk_use(listed[0].bytes), 0, 0, 0]);
    assert_eq!(quarantine.retried().unwrap(), []);
    Quarantine::retry(&LocalDisk, &listed[0]).unwrap();
    let listed = Quarantine::list(&LocalDisk, &home).unwrap();
    assert_eq!(listed[0].note(&LocalDisk), Some(note("a key")));

    // A process that started meanwhile.
    let quarantine = Quarantine::open(disk(), home.clone(), 1 << 20).unwrap();
    let retried = quarantine.retried().unwrap();
    assert_eq!(retried, listed);
    // Its number is another's now.
    let other = seal(&mut parcels, "a", false);
    parcels
        .take_back(&retried[0].path, Timestamp::default())
        .unwrap();
    quarantine.release(&retried[0]);
    assert!(quarantine.is_empty());
    assert_eq!(Quarantine::list(&LocalDisk, &home).unwrap(), []);
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1);

    // What was stored of its trace meanwhile is looked for once more.
    assert_eq!(sendable(&parcels), [other]);
    parcels.finish(other);
    parcels.remove_finished();
    drop(parcels);
    let parcels = Parcels::open(disk(), folder.path().join("objects")).unwrap();
    let [back] = sendable(&parcels)[..] else {
        panic!("{parcels:?}");
    };
    assert!(parcels.is_retried(back));
    assert_eq!(parcels.read(back).unwrap().label, label("a", false));
}

#[test]
fn the_oldest_in_quarantine_make_room_for_the_newest() {
    let (_folder, quarantine) = with_quarantine(3 * BLOCK - 1);
    let put = |name: &str| {
        let what = Quarantinable::Spans;
        quarantine.put(what, name, &[7; 100], &note(name)).unwrap();
    };
    put("00000000000000000001-3.otlp.zst");
    put("00000000000000000002-4.otlp.zst");
    let none = BTreeSet::new();
    assert_eq!(quarantine.excess(&none), None);
    put("00000000000000000003-5.otlp.zst");
    let oldest = quarantine.excess(&none).unwrap();
    assert_eq!(TraceBatches::spans_of(&oldest.name), 3);
    quarantine.give_up(&oldest);
    assert_eq!(quarantine.excess(&none), None);
    assert_eq!(quarantine.bytes(), [0, 0, 2 * BLOCK, 0]);
}

#[test]
fn what_is_to_be_sent_again_is_given_up_only_if_it_can_not_be_taken() {
    let (_folder, quarantine) = with_quarantine(BLOCK);
    for name in [
        "00000000000000000001-3.otlp.zst",
        "00000000000000000002-4.otlp.zst",
    ] {
        let what = Quarantinable::Spans;
        quarantine.put(what, name, &[7; 100], &note(name)).unwrap();
    }
    let none = BTreeSet::new();
    let oldest = quarantine.excess(&none).unwrap();
    Quarantine::retry(&LocalDisk, &oldest).unwrap();
    quarantine.look_again().unwrap();
    assert_ne!(quarantine.excess(&none).unwrap().id, oldest.id);
    let untakeable = BTreeSet::from([oldest.id]);
    let given_up = quarantine.excess(&untakeable).unwrap();
    assert_eq!(given_up.id, oldest.id);
    quarantine.give_up(&given_up);
    assert_eq!(quarantine.excess(&none), None);
    assert!(!given_up.path.try_exists().unwrap());
    assert_eq!(given_up.note(&LocalDisk), None);
}

#[test]
fn a_quarantine_holds_what_is_in_its_folder() {
    let (folder, quarantine) = with_quarantine(1 << 20);
    let home = folder.path().join("quarantine");
    for name in ["0-1.otlp.zst", "0-2.otlp.zst"] {
        let what = Quarantinable::Spans;
        quarantine.put(what, name, b"spans", &note(name)).unwrap();
    }
    // A person removes one; a process dies while it adds another.
    let listed = Quarantine::list(&LocalDisk, &home).unwrap();
    Quarantine::remove(&LocalDisk, &home, &listed[0]).unwrap();
    fs::write(home.join("9.note"), "{}").unwrap();
    fs::write(home.join("0-3.otlp.zst.new"), "half").unwrap();
    fs::write(home.join("notes of a person"), "not ours").unwrap();
    quarantine.look_again().unwrap();
    assert_eq!(quarantine.bytes(), [0, 0, BLOCK, 0]);
    let quarantine = Quarantine::open(disk(), home.clone(), 1 << 20).unwrap();
    assert_eq!(quarantine.bytes(), [0, 0, BLOCK, 0]);
    let mut names: Vec<_> = fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let id = listed[1].id;
    let (file, note) = (format!("{id}-0-2.otlp.zst"), format!("{id}.note"));
    assert_eq!(names, [&*file, &note, "notes of a person", "retry"]);
}

#[test]
fn any_damage_to_a_label_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(disk(), folder.path().to_owned()).unwrap();
    let id = seal(&mut parcels, "a", false);
    let path = parcels.path_of(id);
    let whole = fs::read(&path).unwrap();
    for at in b"body of a".len()..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert!(parcels.read(id).is_err(), "byte {at}");
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(parcels.read(id).is_err(), "length {length}");
    }
}

fn batch(spans: usize) -> EncodedSpans {
    let span = |index: usize| Span {
        name: format!("span {index}"),
        ..Span::default()
    };
    let mut batch = SpanBatch::default();
    batch.extend(&(0..spans).map(span).collect::<Vec<_>>());
    batch.request(&Resource::default())
}

/// All batches, in order.
fn waiting(batches: &TraceBatches) -> Vec<WaitingBatch> {
    let first = batches.first_from(BatchId::default());
    std::iter::successors(first, |batch| batches.first_from(batch.id.next())).collect()
}

#[test]
fn batches_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || TraceBatches::open(disk(), folder.path().to_owned(), 1 << 20).unwrap();
    let batches = open();
    assert_eq!(batches.add(&batch(2)).unwrap(), 0);
    assert_eq!(batches.add(&batch(3)).unwrap(), 0);
    drop(batches);
    let batches = open();
    assert_eq!(batches.add(&batch(4)).unwrap(), 0);
    let all = waiting(&batches);
    let spans: Vec<_> = all.iter().map(|batch| batch.spans).collect();
    assert_eq!(spans, [2, 3, 4]);
    // In any order.
    for waiting in all.iter().rev() {
        assert_eq!(batches.find(waiting.id), Some(*waiting));
        let read = batches.read(waiting).unwrap();
        assert_eq!(read, Some(batch(usize::try_from(waiting.spans).unwrap())));
        batches.remove(waiting);
        assert_eq!(batches.find(waiting.id), None);
    }
    assert!(batches.is_empty());
    assert_eq!(batches.bytes(), 0);
}

#[test]
fn parts_take_the_place_of_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let batches = TraceBatches::open(disk(), folder.path().to_owned(), 1 << 20).unwrap();
    batches.add(&batch(5)).unwrap();
    let [whole] = waiting(&batches)[..] else {
        panic!("{batches:?}");
    };
    let added = batches.replace(&whole, &[batch(2), batch(3)]).unwrap();
    let parts = waiting(&batches);
    assert!(added.iter().eq(parts.iter().map(|part| &part.id)));
    assert_eq!((parts[0].spans, parts[1].spans), (2, 3));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn the_oldest_batches_are_given_up_when_there_is_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let batches = TraceBatches::open(disk(), folder.path().to_owned(), 3 * BLOCK).unwrap();
    let mut given_up = 0;
    for spans in 1..=20 {
        given_up += batches.add(&batch(spans)).unwrap();
    }
    assert_eq!(batches.bytes(), 3 * BLOCK);
    let oldest = waiting(&batches)[0];
    let gone: u64 = (1..oldest.spans).sum();
    assert!(gone > 0);
    assert_eq!(given_up, gone);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count() as u64,
        21 - oldest.spans
    );
}

#[tokio::test]
async fn whoever_waits_for_a_batch_hears_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let batches = TraceBatches::open(disk(), folder.path().to_owned(), 1 << 20).unwrap();
    let adding = async {
        tokio::task::yield_now().await;
        batches.add(&batch(7)).unwrap();
    };
    tokio::join!(batches.added(), adding);
    // Also of one that was added before.
    batches.add(&batch(8)).unwrap();
    batches.added().await;
}
