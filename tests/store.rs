//! One suite for every kind of store: memory, local disk, S3.

#![cfg(test)]

mod support;

use std::io;

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::{Attribute, Attributes, ObjectStoreExt as _, aws::AmazonS3Builder};
use spanplane::{
    archive::{
        Archive, Compression, IndexJournal, InstanceName, Key, PartsError, Place, Put, Query,
        Standing, StoreUrl, TRACE_ID_METADATA, Trouble, Variables,
    },
    line::Line,
    reconcile::{Subject, TraceId},
    time::Timestamp,
};
use support::s3::{BUCKET, Mood, S3Server};

struct Stores {
    named: Vec<(&'static str, Archive)>,
    server: S3Server,
    folder: tempfile::TempDir,
}

async fn stores(compression: Compression) -> Stores {
    let server = S3Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let open = |url: &str, variables: &Variables| {
        Archive::open(&StoreUrl::parse(url).unwrap(), variables, compression).unwrap()
    };
    let disk = format!("file://{}/new/folder", folder.path().display());
    let nothing = Variables::default();
    let named = vec![
        ("memory", open("memory:///a/prefix", &nothing)),
        ("disk", open(&disk, &nothing)),
        ("s3", open(&S3Server::url("a/prefix"), &server.variables())),
        (
            "s3 without prefix",
            open(&S3Server::url(""), &server.variables()),
        ),
    ];
    Stores {
        named,
        server,
        folder,
    }
}

fn subject() -> Subject {
    Subject {
        api_version: "example.org/v1".into(),
        kind: "Test".into(),
        namespace: "default".into(),
        name: "one".into(),
        uid: "uid".into(),
        ..Subject::default()
    }
}

fn trace(id: &str) -> TraceId {
    TraceId(id.into())
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_parts(seconds, 0).unwrap()
}

fn key(id: &str, started_at: Timestamp) -> Key {
    Key::of_reconcile(&subject(), &trace(id), started_at, Compression::None)
}

/// A line of the index.
fn line(trace_id: &str, started_at: Timestamp) -> Line {
    serde_json::from_value(serde_json::json!({
        "v": 1,
        "trace_id": trace_id,
        "otel_trace_id": "",
        "root_span_id": "",
        "started_at": started_at,
        "ended_at": started_at,
        "duration_ms": 0.5,
        "subject": {
            "type": "composite",
            "api_version": "example.org/v1",
            "kind": "Test",
            "namespace": "default",
            "name": "one",
            "uid": "uid",
            "composition": "tests",
        },
        "status": "ok",
        "changed": true,
        "steps": [],
        "object": {"key": "", "state": "stored", "bytes": 0},
        "resources": {"create": [], "update": [], "delete": [], "unchanged": 0},
    }))
    .unwrap()
}

/// What another client is told about an object.
async fn stored_attributes(server: &S3Server, key: &str) -> Attributes {
    let plain = AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_bucket_name(BUCKET)
        .with_access_key_id("inspector")
        .with_secret_access_key("inspector-secret")
        .build()
        .unwrap();
    let found = plain.get(&format!("a/prefix/{key}").into()).await;
    found.unwrap().attributes
}

#[tokio::test]
async fn what_is_put_can_be_listed_fetched_and_put_again() {
    let stores = stores(Compression::None).await;
    for (name, archive) in &stores.named {
        archive.check().await.unwrap();
        assert_eq!(archive.list().await.unwrap().len(), 0, "{name}");
        let key = key("t", at(1_000));
        for content in ["first", "second"] {
            archive
                .put(&key, &trace("t"), Bytes::from(content), Place::Replacing)
                .await
                .unwrap();
            assert_eq!(
                archive.fetch(&key).await.unwrap(),
                content.as_bytes(),
                "{name}"
            );
        }
        let listed = archive.list().await.unwrap();
        assert_eq!(listed.len(), 1, "{name}");
        assert_eq!((&listed[0].0, listed[0].1), (&key, 6), "{name}");
    }
}

#[tokio::test]
async fn the_index_is_stored_and_read_back() {
    let stores = stores(Compression::Gzip).await;
    let journal = tempfile::tempdir().unwrap();
    let instance = InstanceName::new("pod.local", at(0));
    let mut journal = IndexJournal::open(
        std::sync::Arc::new(spanplane::disk::LocalDisk),
        journal.path().to_owned(),
        instance,
    )
    .unwrap();
    for (trace, hour) in [("a", 0), ("b", 1), ("c", 24)] {
        journal
            .append(&line(trace, at(hour * 3_600)), at(90_000))
            .unwrap();
    }
    journal.close_due(at(90_000), true).unwrap();
    let batches: Vec<_> = journal.ready().cloned().collect();
    for (name, archive) in &stores.named {
        // Again, as after a crash.
        for batch in batches.iter().chain(&batches) {
            let body = Bytes::from(std::fs::read(&batch.path).unwrap());
            archive.put_index(&batch.key, body).await.unwrap();
        }
        let read: Vec<_> = archive.read_index(Query::default()).collect().await;
        let traces = read.into_iter().map(|line| line.unwrap().trace_id);
        assert_eq!(traces.collect::<Vec<_>>(), ["c", "b", "a"], "{name}");
        // Beside the reconciles, not among them.
        assert_eq!(archive.list().await.unwrap().len(), 0, "{name}");
    }
    let attributes = stored_attributes(&stores.server, &batches[0].key.to_string()).await;
    assert_eq!(
        attributes.get(&Attribute::ContentType).map(AsRef::as_ref),
        Some("application/zstd")
    );
    assert_eq!(attributes.get(&Attribute::ContentEncoding), None);
}

#[tokio::test]
async fn what_stands_in_a_place_is_not_replaced_unless_asked_for() {
    let stores = stores(Compression::None).await;
    for (name, archive) in &stores.named {
        let key = key("t", at(1_000));
        let put = async |content: &'static str, place| {
            archive
                .put(&key, &trace("t"), Bytes::from(content), place)
                .await
                .unwrap()
        };
        assert_eq!(put("first", Place::IfFree).await, Put::Stored, "{name}");
        assert_eq!(put("second", Place::IfFree).await, Put::Occupied, "{name}");
        assert_eq!(archive.fetch(&key).await.unwrap(), b"first", "{name}");
        assert_eq!(put("third", Place::Replacing).await, Put::Stored, "{name}");
        assert_eq!(archive.fetch(&key).await.unwrap(), b"third", "{name}");
    }
}

#[tokio::test]
async fn a_store_without_conditional_writes_is_written_to_without() {
    let server = S3Server::start().await;
    server.set(Mood::KnowsNoConditions);
    let url = StoreUrl::parse(&S3Server::url("x")).unwrap();
    let archive = Archive::open(&url, &server.variables(), Compression::None).unwrap();
    let key = key("t", at(1_000));
    for content in ["first", "second"] {
        let put = async || {
            archive
                .put(&key, &trace("t"), Bytes::from(content), Place::IfFree)
                .await
                .unwrap()
        };
        if archive.can_create() {
            // Whoever writes has to look first from now on.
            assert_eq!(put().await, Put::Unguarded);
        }
        assert!(!archive.can_create());
        assert_eq!(put().await, Put::Stored);
        assert_eq!(archive.fetch(&key).await.unwrap(), content.as_bytes());
    }
    // Once it has learned it, a check finds out.
    archive.check().await.unwrap();
    assert!(!archive.can_create());
    server.set(Mood::Works);
    archive.check().await.unwrap();
    assert!(archive.can_create());
}

#[tokio::test]
async fn what_is_sent_with_an_object_is_left_out_where_the_store_refuses_it() {
    for (refused, content_type, trace_id) in [
        ("x-amz-meta-", Some("application/json"), None),
        ("content-type", None, None),
        ("no-such-header", Some("application/json"), Some("t")),
    ] {
        let server = S3Server::start().await;
        server.set(Mood::RefusesHeader(refused));
        let url = StoreUrl::parse(&S3Server::url("a/prefix")).unwrap();
        let archive = Archive::open(&url, &server.variables(), Compression::Zstd).unwrap();
        archive.check().await.unwrap();
        let failures = server.failures();
        let key = key("t", at(1_000));
        let trace = trace("t");
        let put = archive.put(&key, &trace, Bytes::from("first"), Place::IfFree);
        assert_eq!(put.await.unwrap(), Put::Stored, "{refused}");
        // The check was written as objects are, so that nothing had to be found out now.
        assert_eq!(server.failures(), failures, "{refused}");
        let attributes = stored_attributes(&server, key.as_str()).await;
        let attribute = |name| attributes.get(&name).map(AsRef::as_ref);
        assert_eq!(attribute(Attribute::ContentType), content_type, "{refused}");
        let name = Attribute::Metadata(TRACE_ID_METADATA.into());
        assert_eq!(attribute(name), trace_id, "{refused}");
    }
}

#[tokio::test]
async fn what_is_sent_with_a_large_object_is_left_out_where_the_store_refuses_it() {
    for (refused, content_type) in [
        ("x-amz-meta-", Some("application/json")),
        ("content-type", None),
    ] {
        let server = S3Server::start().await;
        let url = StoreUrl::parse(&S3Server::url("a/prefix")).unwrap();
        let archive = Archive::open(&url, &server.variables(), Compression::Zstd).unwrap();
        // In words that could mean anything.
        server.set(Mood::RefusesHeader(refused));
        for (id, are_known) in [("first", false), ("second", true)] {
            let failures = server.failures();
            let (key, mut left) = (key(id, at(1_000)), vec!["all of it"]);
            let next = || Ok(left.pop().map(Bytes::from));
            let put = archive
                .put_parts(&key, &trace(id), Place::IfFree, next)
                .await;
            assert_eq!(put.unwrap(), Put::Stored, "{refused}");
            assert_eq!(server.failures() == failures, are_known, "{refused}");
            let attributes = stored_attributes(&server, key.as_str()).await;
            let attribute = |name| attributes.get(&name).map(AsRef::as_ref);
            assert_eq!(attribute(Attribute::ContentType), content_type, "{refused}");
            let name = Attribute::Metadata(TRACE_ID_METADATA.into());
            assert_eq!(attribute(name), None, "{refused}");
        }
    }
}

#[tokio::test]
async fn one_answer_that_could_mean_anything_costs_later_objects_nothing() {
    let server = S3Server::start().await;
    let url = StoreUrl::parse(&S3Server::url("a/prefix")).unwrap();
    let archive = Archive::open(&url, &server.variables(), Compression::Zstd).unwrap();
    server.set(Mood::RefusesUntil(1, 400, "InvalidRequest"));
    for id in ["first", "second"] {
        let (key, trace) = (key(id, at(1_000)), trace(id));
        let put = archive.put(&key, &trace, Bytes::from("x"), Place::IfFree);
        assert_eq!(put.await.unwrap(), Put::Stored, "{id}");
    }
    assert_eq!(server.failures(), 1);
    let key = key("second", at(1_000));
    let attributes = stored_attributes(&server, key.as_str()).await;
    let name = Attribute::Metadata(TRACE_ID_METADATA.into());
    let found = attributes.get(&name).map(AsRef::as_ref);
    assert_eq!(found, Some("second"));
}

#[tokio::test]
async fn a_place_that_is_said_to_be_taken_and_is_not_is_a_refusal() {
    let server = S3Server::start().await;
    let url = StoreUrl::parse(&S3Server::url("x")).unwrap();
    let archive = Archive::open(&url, &server.variables(), Compression::None).unwrap();
    let standing = archive.standing();
    server.set(Mood::RefusesAll(412, "PreconditionFailed"));
    let refused = Some(Trouble::RequestRefused);
    let checked = archive.check().await;
    assert_eq!(checked.err().map(|error| error.trouble), refused);
    assert_eq!(standing.borrow().refusal(), refused);
    let put = async |id: &str| {
        let (key, trace) = (key(id, at(1_000)), trace(id));
        let put = archive.put(&key, &trace, Bytes::from("x"), Place::IfFree);
        put.await.map_err(|error| error.trouble)
    };
    assert_eq!(put("a").await, Err(Trouble::RequestRefused));
    server.set(Mood::Works);
    assert_eq!(put("a").await, Ok(Put::Stored));
    assert_eq!(standing.borrow().refusal(), None);
    assert_eq!(put("a").await, Ok(Put::Occupied));
}

#[tokio::test]
async fn one_place_that_is_denied_is_not_the_store() {
    let server = S3Server::start().await;
    let url = StoreUrl::parse(&S3Server::url("x")).unwrap();
    let archive = Archive::open(&url, &server.variables(), Compression::None).unwrap();
    let mut standing = archive.standing();
    let put = async |id: &str| {
        let (key, trace) = (key(id, at(1_000)), trace(id));
        let put = archive.put(&key, &trace, Bytes::from("x"), Place::Replacing);
        put.await.map_err(|error| error.trouble)
    };
    server.set(Mood::FailsAt("denied", 403, "AccessDenied"));
    put("good").await.unwrap();
    put("denied").await.unwrap_err();
    put("good").await.unwrap();
    standing.mark_unchanged();
    for _ in 0..5 {
        put("denied").await.unwrap_err();
        put("good").await.unwrap();
    }
    assert!(!standing.has_changed().unwrap());
    assert_eq!(*standing.borrow(), Standing::Works);
    server.set(Mood::Denies);
    for id in ["a", "b", "c"] {
        put(id).await.unwrap_err();
    }
    assert_eq!(standing.borrow().refusal(), Some(Trouble::AccessDenied));
}

#[tokio::test]
async fn a_check_leaves_what_an_earlier_one_wrote_as_it_is() {
    use std::os::unix::fs::MetadataExt as _;

    let stores = stores(Compression::Zstd).await;
    let (_, archive) = &stores.named[2];
    let written = || {
        let file = stores.server.file("a/prefix/v1/check.json");
        let metadata = std::fs::metadata(file).unwrap();
        (metadata.ino(), metadata.mtime_nsec())
    };
    archive.check().await.unwrap();
    let first = written();
    archive.check().await.unwrap();
    assert_eq!(written(), first);
    // Not even where the store can't be kept from replacing it.
    stores.server.set(Mood::KnowsNoConditions);
    archive.check().await.unwrap();
    assert_eq!(written(), first);
    // A store that is not there any more is found out all the same.
    stores.server.set(Mood::RefusesAll(403, "AccessDenied"));
    let error = archive.check().await.unwrap_err();
    assert_eq!(error.trouble, Trouble::AccessDenied);
}

#[tokio::test]
async fn where_it_can_not_be_seen_a_check_is_written_once() {
    let server = S3Server::start().await;
    server.set(Mood::IsWriteOnlyWithoutConditions);
    let url = StoreUrl::parse(&S3Server::url("x")).unwrap();
    let open = || Archive::open(&url, &server.variables(), Compression::None).unwrap();
    let file = server.file("x/v1/check.json");
    // Writing is what a check is about, so each process has to try.
    for archive in [open(), open()] {
        archive.check().await.unwrap();
        std::fs::remove_file(&file).unwrap();
        for _ in 0..3 {
            archive.check().await.unwrap();
            assert!(!archive.can_create());
            assert!(!file.try_exists().unwrap(), "it was written again");
        }
    }
    // A write that is refused is tried again.
    let archive = open();
    server.set(Mood::RefusesAll(403, "AccessDenied"));
    archive.check().await.unwrap_err();
    server.set(Mood::IsWriteOnlyWithoutConditions);
    archive.check().await.unwrap();
    assert!(file.try_exists().unwrap());
    // What the store has learned is found out all the same.
    server.set(Mood::Works);
    archive.check().await.unwrap();
    assert!(archive.can_create());
}

#[tokio::test]
async fn how_writing_goes_can_be_watched() {
    let server = S3Server::start().await;
    let url = StoreUrl::parse(&S3Server::url("x")).unwrap();
    let archive = Archive::open(&url, &server.variables(), Compression::None).unwrap();
    let standing = archive.standing();
    let put = async |id: &str| {
        let (key, trace) = (key(id, at(1_000)), trace(id));
        let put = archive.put(&key, &trace, Bytes::from("x"), Place::IfFree);
        put.await.map(|_| standing.borrow().clone())
    };
    assert_eq!(*standing.borrow(), Standing::Unknown);
    assert_eq!(put("a").await.unwrap(), Standing::Works);
    for (mood, trouble, refusal) in [
        (Mood::Unavailable, Trouble::Throttled, None),
        (Mood::RefusesAll(500, "InternalError"), Trouble::Other, None),
        (
            Mood::RefusesAll(400, "InvalidRequest"),
            Trouble::RequestRefused,
            Some(Trouble::RequestRefused),
        ),
        (
            Mood::RefusesAll(412, "PreconditionFailed"),
            Trouble::RequestRefused,
            Some(Trouble::RequestRefused),
        ),
        (
            Mood::RefusesAll(404, "NoIdea"),
            Trouble::BucketMissing,
            Some(Trouble::BucketMissing),
        ),
        (
            Mood::Denies,
            Trouble::AccessDenied,
            Some(Trouble::AccessDenied),
        ),
        (Mood::RefusesAll(429, "Wait"), Trouble::Throttled, None),
    ] {
        server.set(mood);
        let (key, trace) = (key("b", at(1_000)), trace("b"));
        let put = archive.put(&key, &trace, Bytes::from("x"), Place::Replacing);
        assert_eq!(put.await.unwrap_err().trouble, trouble, "{mood:?}");
        let standing = standing.borrow();
        assert!(
            matches!(&*standing, Standing::Fails { trouble: noted, .. } if *noted == trouble),
            "{mood:?} {standing:?}"
        );
        assert_eq!(standing.refusal(), refusal, "{mood:?}");
    }
    server.set(Mood::Works);
    assert_eq!(put("c").await.unwrap(), Standing::Works);
    // One object that is refused says nothing about the store.
    server.set(Mood::Refuses("d.json"));
    put("d").await.unwrap_err();
    assert_eq!(*standing.borrow(), Standing::Works);
}

#[tokio::test]
async fn parts_of_a_reconcile_are_found_by_their_trace_also_across_midnight() {
    let stores = stores(Compression::None).await;
    let midnight = 1_794_787_200;
    for (name, archive) in &stores.named {
        let put = async |id: &str, started_at| {
            let key = key(id, at(started_at));
            let put = archive
                .put(&key, &trace(id), Bytes::from("part"), Place::IfFree)
                .await;
            assert_eq!(put.unwrap(), Put::Stored);
            key
        };
        let before = put("t", midnight - 5).await;
        put("other", midnight - 5).await;
        let after = put("t", midnight + 5).await;
        let find = async |id: &str, around| {
            let found = archive.find(&subject(), &trace(id), at(around)).await;
            found.unwrap()
        };
        for around in [midnight - 6, midnight + 6] {
            assert_eq!(
                find("t", around).await,
                [before.clone(), after.clone()],
                "{name}"
            );
        }
        assert_eq!(find("t", midnight + 43_200).await, [after], "{name}");
        assert_eq!(find("no", midnight).await, [], "{name}");
    }
}

#[tokio::test]
async fn parts_make_an_object_and_an_unfinished_one_is_none() {
    let stores = stores(Compression::None).await;
    for (name, archive) in &stores.named {
        let send = async |parts: Vec<io::Result<Bytes>>, key: &Key| {
            let mut parts = parts.into_iter();
            let next = || parts.next().transpose();
            archive
                .put_parts(key, &trace("t"), Place::IfFree, next)
                .await
        };
        let five_mib = Bytes::from(vec![b'x'; 5 << 20]);
        let whole = key("whole", at(1_000));
        let parts = vec![Ok(five_mib.clone()), Ok(Bytes::from("end"))];
        send(parts, &whole).await.unwrap();
        let content = archive.fetch(&whole).await.unwrap();
        assert!(
            content.len() == (5 << 20) + 3 && content.ends_with(b"xend"),
            "{name}"
        );
        let broken = vec![Ok(five_mib), Err(io::ErrorKind::UnexpectedEof.into())];
        let outcome = send(broken, &key("broken", at(1_000))).await;
        assert!(matches!(outcome, Err(PartsError::Read(_))), "{name}");
        assert_eq!(archive.list().await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn objects_say_what_they_are_where_the_store_can_hold_it() {
    for (compression, encoding) in [
        (Compression::Zstd, Some("zstd")),
        (Compression::Gzip, Some("gzip")),
        (Compression::None, None),
    ] {
        let stores = stores(compression).await;
        let (_, archive) = &stores.named[2];
        let key = Key::of_reconcile(&subject(), &trace("t"), at(1_000), compression);
        archive
            .put(&key, &trace("t\n"), Bytes::from("content"), Place::IfFree)
            .await
            .unwrap();

        let attributes = stored_attributes(&stores.server, &key.to_string()).await;
        let attribute = |name| attributes.get(&name).map(|value| value.to_string());
        assert_eq!(
            attribute(Attribute::ContentType).as_deref(),
            Some("application/json")
        );
        assert_eq!(attribute(Attribute::ContentEncoding).as_deref(), encoding);
        assert_eq!(
            attribute(Attribute::Metadata(TRACE_ID_METADATA.into())).as_deref(),
            Some("t")
        );
    }
    // Azure takes names that C# would take, too.
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    assert!(TRACE_ID_METADATA.bytes().all(is_plain));
}

#[tokio::test]
async fn nothing_is_written_outside_the_prefix() {
    let stores = stores(Compression::None).await;
    let hostile = Subject {
        kind: "../../../etc".into(),
        namespace: "..".into(),
        name: "/etc/passwd\0".into(),
        ..subject()
    };
    let key = Key::of_reconcile(&hostile, &trace("../../x"), at(1_000), Compression::None);
    for (name, archive) in &stores.named {
        archive
            .put(&key, &trace("t"), Bytes::from("content"), Place::IfFree)
            .await
            .unwrap();
        let listed = archive.list().await.unwrap();
        assert!(listed.iter().any(|(listed, ..)| *listed == key), "{name}");
    }
    let entries = |path: &std::path::Path| {
        let names = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names
            .map(|name| name.into_string().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(entries(stores.folder.path()), ["new"]);
    assert_eq!(entries(&stores.folder.path().join("new/folder")), ["v1"]);
}

#[tokio::test]
async fn failures_say_what_is_wrong() {
    let server = S3Server::start().await;
    let put = async |url: &str, variables: &Variables| {
        let url = StoreUrl::parse(url).unwrap();
        let archive = Archive::open(&url, variables, Compression::None).unwrap();
        archive
            .put(
                &key("t", at(1_000)),
                &trace("t"),
                Bytes::from("x"),
                Place::IfFree,
            )
            .await
            .map_err(|error| {
                assert!(!error.detail().contains("inspector-secret"));
                error.trouble
            })
    };
    let variables = server.variables();
    server.set(Mood::HasNoBucket);
    assert_eq!(
        put(&S3Server::url("x"), &variables).await,
        Err(Trouble::BucketMissing)
    );
    server.set(Mood::Denies);
    assert_eq!(
        put(&S3Server::url("x"), &variables).await,
        Err(Trouble::AccessDenied)
    );
    server.set(Mood::Refuses("t.json"));
    assert_eq!(
        put(&S3Server::url("x"), &variables).await,
        Err(Trouble::ObjectRefused)
    );
    server.set(Mood::Works);
    let wrong_key = Variables::from_iter([
        ("AWS_ENDPOINT_URL", server.endpoint().as_str()),
        ("AWS_ACCESS_KEY_ID", "inspector"),
        ("AWS_SECRET_ACCESS_KEY", "another-secret"),
    ]);
    assert_eq!(
        put(&S3Server::url("x"), &wrong_key).await,
        Err(Trouble::NotAuthenticated)
    );
    let nobody = Variables::from_iter([
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ACCESS_KEY_ID", "inspector"),
        ("AWS_SECRET_ACCESS_KEY", "inspector-secret"),
    ]);
    assert_eq!(
        put(&S3Server::url("x"), &nobody).await,
        Err(Trouble::Unreachable)
    );
    // Plain http only where the endpoint says so, whatever else is set.
    let https = Variables::from_iter([
        (
            "AWS_ENDPOINT_URL",
            server.endpoint().replace("http:", "https:").as_str(),
        ),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "inspector"),
        ("AWS_SECRET_ACCESS_KEY", "inspector-secret"),
    ]);
    assert_eq!(
        put(&S3Server::url("x"), &https).await,
        Err(Trouble::Unreachable)
    );
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_to_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let archive = support::folder_archive(folder.path());
    // A file in the place of the first folder keeps everybody out, root too.
    std::fs::write(folder.path().join("v1"), "in the way").unwrap();
    let stored = archive
        .put(
            &key("t", at(1_000)),
            &trace("t"),
            Bytes::from("x"),
            Place::IfFree,
        )
        .await;
    let error = stored.unwrap_err();
    assert!(error.trouble.is_transient(), "{error:?}");
    assert!(!error.trouble.advice().is_empty());
}
