//! Traces that are found by what stands beside the index.

use std::fs;

use super::*;

fn asking_for(prefix: &str) -> Query {
    Query {
        trace_id: Some(prefix.to_owned()),
        ..Query::default()
    }
}

/// Three batches, of which only the one with `trace_id` can be read.
async fn store_around(folder: &Path, trace_id: &str) {
    let archive = on_disk(folder);
    for (sequence, trace) in (1..).zip(["before", trace_id, "later"]) {
        let key = key(at(0), 1, sequence);
        put(&archive, &key, batch([&line(trace, at(0))])).await;
        if trace != trace_id {
            fs::write(folder.join(key.to_string()), "no zstd").unwrap();
        }
    }
}

#[tokio::test]
async fn other_batches_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let uuid = "0f0a1b2c-3d4e-4f50-8172-93a4b5c6d7e8";
    store_around(folder.path(), uuid).await;
    let archive = on_disk(folder.path());
    for prefix in [uuid, "0f0a1b2c", "0f0a1b2c3d4e", "0f0a1b2c-3"] {
        assert_eq!(traces(&archive, asking_for(prefix)).await, [uuid]);
    }
    for prefix in ["0f0a1b2d", "a1b2c", &format!("{uuid}0")] {
        assert_eq!(traces(&archive, asking_for(prefix)).await.len(), 0);
    }
}

#[tokio::test]
async fn an_id_of_another_form_is_found_by_what_it_is_and_by_what_it_became() {
    let folder = tempfile::tempdir().unwrap();
    store_around(folder.path(), "Trace-789").await;
    let archive = on_disk(folder.path());
    let became = line("Trace-789", at(0)).otel_trace_id;
    for prefix in ["Trace-789", "Trace7", &became] {
        assert_eq!(traces(&archive, asking_for(prefix)).await, ["Trace-789"]);
    }
}

#[tokio::test]
async fn ids_out_of_the_ordinary_are_looked_for_in_the_batch() {
    for odd in ["", "a b", "a\nb", "a\"b", "é", "a\\b"] {
        let folder = tempfile::tempdir().unwrap();
        let archive = on_disk(folder.path());
        put(&archive, &key(at(0), 1, 1), batch([&line(odd, at(0))])).await;
        assert_eq!(traces(&archive, asking_for(odd)).await, [odd]);
    }
}

#[tokio::test]
async fn a_batch_without_ids_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let archive = on_disk(folder.path());
    let stored = batch([&line("a", at(0)), &line("b", at(1))]);
    put(&archive, &key(at(0), 1, 1), stored).await;
    fs::remove_dir_all(folder.path().join("v1/ids")).unwrap();
    assert_eq!(traces(&archive, asking_for("b")).await, ["b"]);
}

#[tokio::test]
async fn people_can_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let (uuid, digits) = (
        "0f0a1b2c-3d4e-4f50-8172-93a4b5c6d7e8",
        "0f0a1b2c3d4e4f50817293a4b5c6d7e8",
    );
    let other = line("trace-789", at(1));
    let key = key(at(0), 255, 42);
    let stored = batch([&line(uuid, at(0)), &other]);
    put(&on_disk(folder.path()), &key, stored).await;
    let path = "v1/ids/date=2023-11-14/hour=04/pod-00000000000000ff-00000042.ids.txt";
    assert_eq!(
        fs::read_to_string(folder.path().join(path)).unwrap(),
        format!("{digits}\n{} trace-789\n", other.otel_trace_id)
    );
}
