//! Parcels and batches through restarts and damage.

use std::io::Write as _;

use opentelemetry_proto::tonic::{resource::v1::Resource, trace::v1::Span};

use super::*;
use crate::{
    fingerprint::Fingerprint,
    line::samples,
    reconcile::Subject,
    spans::{EncodedSpans, SpanBatch},
    time::Timestamp,
};

fn label(trace_id: &str, is_fragment: bool) -> Label {
    Label {
        subject: Subject::default(),
        is_fragment,
        fingerprint: Fingerprint::of(trace_id.as_bytes()),
        line: samples::line(trace_id, Timestamp::default()),
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
    parcels.sendable().map(|(id, _)| id).collect()
}

#[test]
fn a_parcel_reads_back_as_it_was_packed_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(folder.path().to_owned()).unwrap();
    let id = seal(&mut parcels, "a", false);
    // Never sealed, so never sent.
    parcels.begin().unwrap().write_all(b"half").unwrap();
    parcels.sync().unwrap();
    drop(parcels);

    let mut parcels = Parcels::open(folder.path().to_owned()).unwrap();
    assert_eq!(sendable(&parcels), [id]);
    let mut parcel = parcels.read(id).unwrap();
    assert_eq!(parcel.label, label("a", false));
    assert_eq!(parcel.next_part(4).unwrap(), b"body");
    assert_eq!(parcel.next_part(100).unwrap(), b" of a");
    assert_eq!(parcel.next_part(100).unwrap(), b"");
    parcel.rewind().unwrap();
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
    let mut parcels = Parcels::open(folder.path().to_owned()).unwrap();
    let id = seal(&mut parcels, "a", false);
    drop(parcels);
    let mut parcels = Parcels::open(folder.path().to_owned()).unwrap();
    assert_eq!(parcels.find("a", Fingerprint::of(b"a")), Some(id));
    assert_eq!(parcels.find("a", Fingerprint::of(b"b")), None);
    parcels.finish(id);
    assert_eq!(parcels.find("a", Fingerprint::of(b"a")), None);
}

#[test]
fn a_late_part_waits_for_all_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(folder.path().to_owned()).unwrap();
    let whole = seal(&mut parcels, "a", false);
    let late = seal(&mut parcels, "b", true);
    let other = seal(&mut parcels, "c", false);
    assert_eq!(sendable(&parcels), [whole, other]);
    drop(parcels);
    let mut parcels = Parcels::open(folder.path().to_owned()).unwrap();
    assert_eq!(sendable(&parcels), [whole, other]);
    parcels.finish(whole);
    assert_eq!(sendable(&parcels), [late, other]);
    assert!(parcels.read(late).unwrap().label.is_fragment);
}

#[test]
fn any_damage_to_a_label_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let mut parcels = Parcels::open(folder.path().to_owned()).unwrap();
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

#[tokio::test]
async fn batches_go_in_order_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || TraceBatches::open(folder.path().to_owned(), 1 << 20).unwrap();
    let batches = open();
    assert_eq!(batches.add(&batch(2)).unwrap(), 0);
    assert_eq!(batches.add(&batch(3)).unwrap(), 0);
    drop(batches);
    let batches = open();
    assert_eq!(batches.add(&batch(4)).unwrap(), 0);
    for spans in [2, 3, 4] {
        let oldest = batches.oldest().await;
        assert_eq!(oldest.spans, spans);
        let read = batches.read(&oldest).unwrap();
        assert_eq!(read, Some(batch(usize::try_from(spans).unwrap())));
        batches.remove(&oldest);
    }
    assert!(batches.is_empty());
    assert_eq!(batches.bytes(), 0);
}

#[tokio::test]
async fn the_oldest_batches_are_given_up_when_there_is_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let batches = TraceBatches::open(folder.path().to_owned(), 200).unwrap();
    let mut given_up = 0;
    for spans in 1..=20 {
        given_up += batches.add(&batch(spans)).unwrap();
    }
    assert!(batches.bytes() <= 200);
    let oldest = batches.oldest().await;
    let gone: u64 = (1..oldest.spans).sum();
    assert!(gone > 0);
    assert_eq!(given_up, gone);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count() as u64,
        21 - oldest.spans
    );
}

#[tokio::test]
async fn whoever_waits_for_a_batch_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let batches = TraceBatches::open(folder.path().to_owned(), 1 << 20).unwrap();
    let waiting = async { batches.oldest().await.spans };
    let adding = async {
        tokio::task::yield_now().await;
        batches.add(&batch(7)).unwrap();
    };
    assert_eq!(tokio::join!(waiting, adding).0, 7);
}
