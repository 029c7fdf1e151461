//! Reconciles that are found by what stands beside the index.

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

/// Whoever reads a batch other than that of minute 30 says so.
#[tokio::test]
async fn what_holds_no_such_subject_or_time_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let archive = on_disk(folder.path());
    for (minute, sequence) in (0..60).zip(1..) {
        let mut line = line(&minute.to_string(), at(minute * 60));
        line.subject.name = format!("net-{minute}");
        let key = key(at(0), 1, sequence);
        put(&archive, &key, batch([&line])).await;
        if minute != 30 {
            fs::write(folder.path().join(key.to_string()), "no zstd").unwrap();
        }
    }
    let mut named = Query::default();
    named.subject.name = Some("net-30".to_owned());
    assert_eq!(traces(&archive, named).await, ["30"]);
    // Five minutes around are read as well.
    let until = Query {
        until: Some(at(30 * 60 + 1)),
        ..Query::default()
    };
    let read = read(&archive, until).await;
    assert_eq!(read.iter().filter(|item| item.is_err()).count(), 30 + 5);
}

#[tokio::test]
async fn what_is_out_of_the_ordinary_is_looked_for_in_the_batch() {
    for odd in ["", "a b", "a\nb", "a\"b", "é", "a\\b"] {
        let folder = tempfile::tempdir().unwrap();
        let archive = on_disk(folder.path());
        let mut one = line(odd, at(0));
        one.subject.name = odd.to_owned();
        put(&archive, &key(at(0), 1, 1), batch([&one])).await;
        assert_eq!(traces(&archive, asking_for(odd)).await, [odd]);
        let mut named = Query::default();
        named.subject.name = Some(odd.to_owned());
        assert_eq!(traces(&archive, named).await, [odd]);
    }
}

#[tokio::test]
async fn what_stands_for_a_line_is_read_though_it_began_at_another_time() {
    let folder = tempfile::tempdir().unwrap();
    let archive = on_disk(folder.path());
    let whole = with_steps(line("a", at(60)), 2);
    put(&archive, &key(at(0), 1, 1), batch([&line("a", at(0))])).await;
    put(&archive, &key(at(0), 1, 2), batch([&whole])).await;
    let query = Query {
        until: Some(at(30)),
        ..Query::default()
    };
    assert_eq!(traces(&archive, query).await.len(), 0);
}

#[tokio::test]
async fn a_batch_of_unknown_contents_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let archive = on_disk(folder.path());
    let stored = batch([&line("a", at(0)), &line("b", at(1))]);
    put(&archive, &key(at(0), 1, 1), stored).await;
    fs::remove_dir_all(folder.path().join("v1/contents")).unwrap();
    assert_eq!(traces(&archive, asking_for("b")).await, ["b"]);
}

#[tokio::test]
async fn people_can_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let uuid = "0f0a1b2c-3d4e-4f50-8172-93a4b5c6d7e8";
    let other = line("trace-789", at(1));
    let key = key(at(0), 255, 42);
    let stored = batch([&line(uuid, at(0)), &other]);
    put(&on_disk(folder.path()), &key, stored).await;
    let path = "v1/contents/date=2023-11-14/hour=04/pod-00000000000000ff-00000042.contents.txt";
    let other = other.otel_trace_id;
    assert_eq!(
        fs::read_to_string(folder.path().join(path)).unwrap(),
        format!(
            "2023-11-14T04:00:00.000000000Z 0f0a1b2c3d4e4f50817293a4b5c6d7e8 prod-net\n\
             2023-11-14T04:00:01.000000000Z {other} prod-net trace-789\n"
        )
    );
}
