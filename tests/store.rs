//! One suite for every kind of store: memory, local disk, S3.

#![cfg(test)]

mod support;

use bytes::Bytes;
use object_store::{Attribute, ObjectStoreExt as _, aws::AmazonS3Builder};
use spanplane::{
    archive::{
        Archive, Compression, Existing, Key, Part, Place, Put, StoreUrl, Trouble, Variables,
    },
    reconcile::{Subject, TraceId},
    time::Timestamp,
};
use support::s3::{BUCKET, Mood, S3Server};
use tokio::sync::mpsc;

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
        let put = archive
            .put(&key, &trace("t"), Bytes::from(content), Place::IfFree)
            .await;
        assert_eq!(put.unwrap(), Put::Stored);
        assert_eq!(archive.fetch(&key).await.unwrap(), content.as_bytes());
    }
}

#[tokio::test]
async fn an_earlier_part_is_found_by_its_trace_also_across_midnight() {
    let stores = stores(Compression::None).await;
    let midnight = 1_794_787_200;
    for (name, archive) in &stores.named {
        let before = key("t", at(midnight - 5));
        archive
            .put(&before, &trace("t"), Bytes::from("document"), Place::IfFree)
            .await
            .unwrap();
        let neighbour = key("other", at(midnight - 5));
        archive
            .put(
                &neighbour,
                &trace("other"),
                Bytes::from("no"),
                Place::IfFree,
            )
            .await
            .unwrap();
        let found = archive
            .find(&subject(), &trace("t"), at(midnight + 5))
            .await
            .unwrap();
        let Some(Existing::Document { key, document }) = found else {
            panic!("{name}: {found:?}")
        };
        assert_eq!(
            (&key, document.as_slice()),
            (&before, b"document".as_slice()),
            "{name}"
        );
        let nothing = archive
            .find(&subject(), &trace("no"), at(midnight))
            .await
            .unwrap();
        assert!(nothing.is_none(), "{name}");
    }
}

#[tokio::test]
async fn a_part_too_large_to_be_joined_is_told_as_such() {
    let stores = stores(Compression::None).await;
    for (name, archive) in &stores.named {
        let key = key("large", at(1_000));
        archive
            .put(
                &key,
                &trace("large"),
                vec![b'x'; 5 << 20].into(),
                Place::IfFree,
            )
            .await
            .unwrap();
        let found = archive
            .find(&subject(), &trace("large"), at(1_000))
            .await
            .unwrap();
        assert!(matches!(found, Some(Existing::Unjoinable { .. })), "{name}");
    }
}

#[tokio::test]
async fn parts_make_an_object_and_an_unfinished_one_is_none() {
    let stores = stores(Compression::None).await;
    for (name, archive) in &stores.named {
        let send = async |parts: Vec<Part>, key: &Key| {
            let (sender, mut receiver) = mpsc::channel(8);
            for part in parts {
                sender.send(part).await.unwrap();
            }
            drop(sender);
            archive
                .put_parts(key, &trace("t"), &mut receiver)
                .await
                .unwrap()
        };
        let five_mib = Bytes::from(vec![b'x'; 5 << 20]);
        let whole = key("whole", at(1_000));
        let parts = vec![Part::More(five_mib.clone()), Part::Last(Bytes::from("end"))];
        assert_eq!(send(parts, &whole).await, Some((5 << 20) + 3), "{name}");
        let content = archive.fetch(&whole).await.unwrap();
        assert!(
            content.len() == (5 << 20) + 3 && content.ends_with(b"xend"),
            "{name}"
        );
        assert_eq!(
            send(vec![Part::More(five_mib)], &key("broken", at(1_000))).await,
            None
        );
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

        let plain = AmazonS3Builder::new()
            .with_endpoint(stores.server.endpoint())
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_access_key_id("inspector")
            .with_secret_access_key("inspector-secret")
            .build()
            .unwrap();
        let found = plain.get(&format!("a/prefix/{key}").into()).await.unwrap();
        let attribute = |name| found.attributes.get(&name).map(|value| value.to_string());
        assert_eq!(
            attribute(Attribute::ContentType).as_deref(),
            Some("application/json")
        );
        assert_eq!(attribute(Attribute::ContentEncoding).as_deref(), encoding);
        assert_eq!(
            attribute(Attribute::Metadata("trace-id".into())).as_deref(),
            Some("t")
        );
    }
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
