//! A store that misbehaves: whatever it does to one upload, the others pass, and nothing is lost.

#![cfg(test)]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use spanplane::{
    archive::StandingNote,
    disk::LocalDisk,
    outbox::{ParcelReader, Parcels, Quarantinable, Quarantine, Quarantined},
    reconcile::PayloadHash,
    record::{Record, RecordKind},
    serve::Sidecar,
    time::Timestamp,
};
use support::{
    Home, PATIENCE, assert_all_payloads_stored, capture, counted, fill_spool, get, message,
    message_at,
    s3::{Mood, S3Server},
    stop, until,
};

/// Ends a reconcile, so that it is stored at once.
const FATAL: &str = r#"{"results":[{"severity":"SEVERITY_FATAL"}]}"#;

/// Hex of a hash chain: half of it is left when it is compressed.
fn noise(seed: usize) -> String {
    let mut hash = PayloadHash::of(&seed.to_le_bytes());
    let mut noise = String::new();
    while noise.len() < 80_000 {
        noise.push_str(&hash.to_string());
        hash = PayloadHash::of(&hash.0);
    }
    format!("\"{noise}\"")
}

/// A reconcile of an XR called `xr-of-<trace>`.
fn reconcile(trace: &str) -> [Record; 2] {
    let request = format!("{{\"of\":\"{trace}\"}}");
    [
        message(trace, 0, RecordKind::Request, &request),
        message(trace, 0, RecordKind::Response, FATAL),
    ]
}

fn reconciles(name: &str, count: usize) -> Vec<Record> {
    let traces = (0..count).map(|number| format!("{name}-{number}"));
    traces.flat_map(|trace| reconcile(&trace)).collect()
}

fn quarantine_of(home: &Home) -> PathBuf {
    home.data_dir().join("quarantine")
}

fn quarantined(home: &Home) -> Vec<Quarantined> {
    Quarantine::list(&LocalDisk, &quarantine_of(home)).unwrap()
}

/// What the index says of the object of each trace. No two entries are of the same revision.
fn states(server: &S3Server) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    for line in server.index_lines() {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let key = (text(&line["trace_id"]), line["revision"].as_u64());
        let before = states.insert(key, text(&line["object"]["state"]));
        assert_eq!(before, None, "{line}");
    }
    // The highest revision comes last.
    let states = states.into_iter();
    states.map(|((trace, _), state)| (trace, state)).collect()
}

async fn until_stored(home: &Home, count: usize) {
    let archive = home.archive();
    let stored = async {
        while archive.list().await.unwrap().len() < count {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(support::PATIENCE, stored).await;
    let keys: Vec<_> = home.documents().await.into_keys().collect();
    assert!(
        waited.is_ok(),
        "waited in vain for {count} objects: {keys:?}"
    );
}

#[tokio::test]
async fn a_throttled_store_gets_everything_in_the_end() {
    let server = S3Server::start().await;
    server.set(Mood::Throttles);
    let home = Home::with_s3(&server);
    let records = reconciles("t", 24);
    let metrics = home.play(&["--shutdown-timeout=10m"], &records).await;
    assert_eq!(counted(&metrics, "spanplane_objects_stored_total"), 24);
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    assert_eq!(counted(&metrics, "spanplane_quarantined_total"), 0);
    assert_all_payloads_stored(&records, &home.documents().await);
    assert_eq!(states(&server).len(), 24);
}

#[tokio::test]
async fn a_key_that_is_denied_waits_for_as_long_as_it_takes_and_holds_nothing_up() {
    let server = S3Server::start().await;
    server.set(Mood::FailsAt("xr-of-denied", 403, "AccessDenied"));
    let home = Home::with_s3(&server);
    let sidecar = home.start(&[]).await;
    let mut records = reconcile("denied").to_vec();
    records.extend(reconciles("good", 20));
    home.emit_all(&records).await;
    until_stored(&home, 20).await;
    until("it was tried many times", || {
        server.tries_of("xr-of-denied") > 12
    })
    .await;
    let metrics = sidecar.metrics().text().unwrap();
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    assert_eq!(quarantined(&home), []);
    server.set(Mood::Works);
    stop(sidecar).await;
    assert_all_payloads_stored(&records, &home.documents().await);
    assert_eq!(states(&server)["denied"], "stored");
}

#[tokio::test]
async fn more_stuck_uploads_than_there_are_at_once_hold_nothing_up() {
    let server = S3Server::start().await;
    server.set(Mood::FailsAt("xr-of-stuck", 503, "SlowDown"));
    let home = Home::with_s3(&server);
    let sidecar = home.start(&[]).await;
    let mut records = reconciles("stuck", 20);
    home.emit_all(&records).await;
    until("all of them failed", || {
        (0..20).all(|number| server.tries_of(&format!("xr-of-stuck-{number}/")) > 0)
    })
    .await;
    let good = reconciles("good", 20);
    home.emit_all(&good).await;
    until_stored(&home, 20).await;
    records.extend(good);
    server.set(Mood::Works);
    stop(sidecar).await;
    assert_all_payloads_stored(&records, &home.documents().await);
}

#[tokio::test]
async fn index_batches_that_are_stuck_hold_no_others_up() {
    let server = S3Server::start().await;
    server.set(Mood::FailsAt("date=2026-11-15", 503, "SlowDown"));
    let home = Home::with_s3(&server);
    let sidecar = home.start(&[]).await;
    let metrics = sidecar.metrics().clone();
    // Each hour has a batch of its own; three of them are of the day that fails.
    let midnight = 1_794_787_200;
    let hours = (-3..4).map(|hour| (hour, format!("t{hour}")));
    let records = hours.flat_map(|(hour, trace)| {
        let at = midnight + hour * 3600;
        [
            message_at(at, &trace, 0, RecordKind::Request, "{}"),
            message_at(at, &trace, 0, RecordKind::Response, FATAL),
        ]
    });
    home.emit_all(&records.collect::<Vec<_>>()).await;
    let passing = async {
        until("the others passed", || {
            let metrics = metrics.text().unwrap();
            counted(&metrics, "spanplane_index_batches_stored_total") == 4
        })
        .await;
        assert_eq!(states(&server).len(), 4);
        server.set(Mood::Works);
    };
    tokio::join!(stop(sidecar), passing);
    assert_eq!(states(&server).len(), 7);
}

#[tokio::test]
async fn an_object_that_the_store_refuses_is_quarantined_and_sent_again_on_command() {
    let server = S3Server::start().await;
    server.set(Mood::Refuses("xr-of-bad"));
    let home = Home::with_s3(&server);
    let records: Vec<_> = ["good-1", "bad", "good-2"]
        .into_iter()
        .flat_map(reconcile)
        .collect();
    let metrics = home.play(&[], &records).await;
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    let is_counted = "spanplane_quarantined_total{kind=\"objects\"} 1";
    assert!(metrics.contains(is_counted), "{metrics}");
    assert!(counted(&metrics, "spanplane_quarantine_bytes") > 0);
    let keys: Vec<_> = home.documents().await.into_keys().collect();
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| key.contains("good")));

    let held = quarantined(&home);
    assert_eq!((held.len(), held[0].what), (1, Quarantinable::Object));
    let note = held[0].note(&LocalDisk).unwrap();
    assert!(note.what.contains("xr-of-bad"), "{note:?}");
    assert!(note.reason.contains("EntityTooLarge"), "{note:?}");
    assert_eq!(states(&server)["bad"], "queued");

    // Still refused, and still there.
    let sidecar = home.start(&[]).await;
    let more = reconcile("good-3");
    home.emit_all(&more).await;
    until_stored(&home, 3).await;
    Quarantine::retry(&LocalDisk, &held[0]).unwrap();
    until("it is back", || {
        let held = quarantined(&home);
        held.first().is_some_and(|file| !file.is_retried) && server.tries_of("xr-of-bad") > 1
    })
    .await;

    // Somebody raises the limit.
    server.set(Mood::Works);
    Quarantine::retry(&LocalDisk, &quarantined(&home)[0]).unwrap();
    until_stored(&home, 4).await;
    let metrics = stop(sidecar).await;
    assert_eq!(counted(&metrics, "spanplane_quarantine_bytes"), 0);
    assert_eq!(quarantined(&home), []);
    assert_all_payloads_stored(&records, &home.documents().await);
    assert_eq!(states(&server)["bad"], "stored");
}

#[tokio::test]
async fn what_is_sent_again_joins_what_was_stored_of_it_meanwhile() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    home.play(&[], &reconcile("good")).await;
    server.set(Mood::FailsAt("xr-of-t/", 413, "EntityTooLarge"));
    let sidecar = home.start(&[]).await;
    // Something has to pass, or the store would refuse everything.
    home.emit_all(&reconcile("other")).await;
    until_stored(&home, 2).await;
    let first = [
        message("t", 0, RecordKind::Request, r#"{"a":0}"#),
        message("t", 0, RecordKind::Response, FATAL),
    ];
    home.emit_all(&first).await;
    until("it is in quarantine", || !quarantined(&home).is_empty()).await;
    stop(sidecar).await;
    server.set(Mood::Works);
    let late = [message("t", 1, RecordKind::Response, r#"{"b":1}"#)];
    home.play(&[], &late).await;
    Quarantine::retry(&LocalDisk, &quarantined(&home)[0]).unwrap();
    home.play(&[], &[]).await;
    let documents = home.documents().await;
    assert_eq!(documents.len(), 3, "{:?}", documents.keys());
    assert_all_payloads_stored(&[&first[..], &late].concat(), &documents);
}

#[tokio::test]
async fn an_answer_that_could_mean_anything_is_about_an_object_if_others_pass() {
    let server = S3Server::start().await;
    server.set(Mood::FailsAt("xr-of-odd", 400, "InvalidRequest"));
    let home = Home::with_s3(&server);
    let sidecar = home.start(&[]).await;
    home.emit_all(&reconcile("odd")).await;
    until("it was tried often", || server.tries_of("xr-of-odd") > 8).await;
    // Nothing says yet that it isn't the store.
    assert_eq!(quarantined(&home), []);
    home.emit_all(&reconcile("good")).await;
    until("it is in quarantine", || !quarantined(&home).is_empty()).await;
    let metrics = stop(sidecar).await;
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
}

#[tokio::test]
async fn a_store_that_refuses_everything_quarantines_nothing() {
    let server = S3Server::start().await;
    server.set(Mood::FailsAt("/v1/", 413, "EntityTooLarge"));
    let home = Home::with_s3(&server);
    let records = reconciles("t", 12);
    let sidecar = home.start(&["--shutdown-timeout=10ms"]).await;
    home.emit_all(&records).await;
    until("it was tried often", || server.tries_of("/v1/") > 40).await;
    let metrics = stop(sidecar).await;
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    assert_eq!(quarantined(&home), []);
    server.set(Mood::Works);
    home.play(&[], &[]).await;
    assert_all_payloads_stored(&records, &home.documents().await);
}

#[tokio::test]
async fn an_index_batch_that_the_store_refuses_is_quarantined_and_sent_again() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    let sidecar = home.start(&[]).await;
    server.set(Mood::Refuses("date=2026-11-15/hour=23"));
    let midnight = 1_794_787_200;
    let of = |trace: &str, at: i64| {
        [
            message_at(at, trace, 0, RecordKind::Request, "{}"),
            message_at(at, trace, 0, RecordKind::Response, FATAL),
        ]
    };
    home.emit_all(&of("before", midnight - 60)).await;
    home.emit_all(&of("after", midnight + 60)).await;
    let metrics = stop(sidecar).await;
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    assert_eq!(states(&server).into_keys().collect::<Vec<_>>(), ["after"]);
    let held = quarantined(&home);
    assert_eq!((held.len(), held[0].what), (1, Quarantinable::Index));
    assert!(held[0].note(&LocalDisk).unwrap().what.contains("/hour=23/"));

    server.set(Mood::Works);
    Quarantine::retry(&LocalDisk, &held[0]).unwrap();
    home.play(&[], &[]).await;
    assert_eq!(states(&server).len(), 2);
    assert_eq!(quarantined(&home), []);
}

#[tokio::test]
async fn the_quarantine_is_kept_within_its_limit_and_what_it_loses_is_counted() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    let sidecar = home.start(&["--spool-max-bytes=1MiB"]).await;
    home.emit_all(&reconcile("good")).await;
    until_stored(&home, 1).await;
    server.set(Mood::Refuses("xr-of-bad"));
    for number in 0..8 {
        let trace = format!("bad-{number}");
        let records = [
            message(&trace, 0, RecordKind::Request, &noise(number)),
            message(&trace, 0, RecordKind::Response, FATAL),
        ];
        home.emit_all(&records).await;
        until("it was refused", || {
            server.tries_of(&format!("xr-of-{trace}/")) > 0
        })
        .await;
    }
    let metrics = sidecar.metrics().clone();
    until("the oldest are lost", || {
        let metrics = metrics.text().unwrap();
        let lost = counted(&metrics, "spanplane_objects_dropped_total");
        let held = quarantined(&home);
        let bytes: u64 = held.iter().map(|file| file.bytes).sum();
        lost > 0 && lost + held.len() as u64 == 8 && bytes <= 128 * 1024
    })
    .await;
    let held = quarantined(&home);
    let newest = held.last().unwrap().note(&LocalDisk).unwrap();
    assert!(newest.what.contains("xr-of-bad-7"), "{newest:?}");
    stop(sidecar).await;
}

#[tokio::test]
async fn an_answer_that_could_mean_anything_pushes_nothing_out_of_a_full_quarantine() {
    const COUNT: usize = 4;
    /// That there is room for.
    const HELD: usize = 2;

    let server = S3Server::start().await;
    server.set(Mood::FailsAt("xr-of-odd", 400, "InvalidRequest"));
    let home = Home::with_s3(&server);
    let sidecar = home.start(&["--spool-max-bytes=1MiB"]).await;
    let odd = (0..COUNT).flat_map(|number| {
        let trace = format!("odd-{number}");
        [
            message(&trace, 0, RecordKind::Request, &noise(number)),
            message(&trace, 0, RecordKind::Response, FATAL),
        ]
    });
    let mut sent: Vec<_> = odd.collect();
    home.emit_all(&sent).await;
    let metrics = sidecar.metrics().clone();
    let passing = async {
        for passed in 1.. {
            // Others pass, so that it seems to be about these.
            let other = reconcile(&format!("other-{passed}"));
            home.emit_all(&other).await;
            sent.extend(other);
            until_stored(&home, passed).await;
            let text = metrics.text().unwrap();
            assert_eq!(counted(&text, "spanplane_objects_dropped_total"), 0);
            let tries = |number| server.tries_of(&format!("xr-of-odd-{number}/"));
            let often = (0..COUNT).filter(|number| tries(*number) > 8).count();
            if quarantined(&home).len() == HELD && often >= COUNT - HELD {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, passing).await.unwrap();
    server.set(Mood::Works);
    let metrics = stop(sidecar).await;
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    for file in quarantined(&home) {
        Quarantine::retry(&LocalDisk, &file).unwrap();
    }
    stop(home.start(&[]).await).await;
    assert_eq!(quarantined(&home), []);
    assert_all_payloads_stored(&sent, &home.documents().await);
}

#[tokio::test]
async fn an_object_that_could_not_be_moved_to_the_quarantine_is_known_to_be_stored_later() {
    let server = S3Server::start().await;
    server.set(Mood::Refuses("xr-of-bad"));
    let home = Home::with_s3(&server);
    let sidecar = home.start(&[]).await;
    // Nothing can be moved there.
    fs::remove_dir_all(quarantine_of(&home)).unwrap();
    fs::write(quarantine_of(&home), "in the way").unwrap();
    home.emit_all(&reconciles("good", 1)).await;
    home.emit_all(&reconcile("bad")).await;
    until("it was refused again", || server.tries_of("xr-of-bad") > 2).await;
    server.set(Mood::Works);
    until_stored(&home, 2).await;
    stop(sidecar).await;
    assert_eq!(states(&server)["bad"], "stored");
}

#[tokio::test]
async fn an_object_that_cannot_be_sent_as_it_is_is_kept_for_a_person_to_look_at() {
    let server = S3Server::start().await;
    server.set(Mood::Unavailable);
    let home = Home::with_s3(&server);
    let settings = home.settings(&["--shutdown-timeout=10ms"]);
    let sidecar = Sidecar::start(settings).await.unwrap();
    home.emit_all(&reconcile("odd")).await;
    let objects = home.data_dir().join("outbox/objects");
    let parcel_in = || {
        let files = fs::read_dir(&objects).unwrap();
        let mut paths = files.map(|file| file.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|end| end == "parcel"))
    };
    until("it waits", || parcel_in().is_some()).await;
    stop(sidecar).await;

    // Somebody gives it a key that is not one.
    let path = parcel_in().unwrap();
    let mut parcel = ParcelReader::open(&LocalDisk, &path).unwrap();
    let body = parcel.next_part(u64::MAX).unwrap();
    parcel.label.line.object.key = "v1/../odd".to_owned();
    let mut parcels = Parcels::open(Arc::new(LocalDisk), objects.clone()).unwrap();
    let mut writer = parcels.begin().unwrap();
    writer.write_all(&body).unwrap();
    let now = Timestamp::default();
    parcels.seal(writer, &parcel.label, now).unwrap();
    fs::remove_file(path).unwrap();

    server.set(Mood::Works);
    let metrics = home.play(&[], &reconcile("good")).await;
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    let held = quarantined(&home);
    assert_eq!((held.len(), held[0].what), (1, Quarantinable::Object));
    let note = held[0].note(&LocalDisk).unwrap();
    assert!(note.reason.contains("not that of a reconcile"), "{note:?}");
    let mut kept = ParcelReader::open(&LocalDisk, &held[0].path).unwrap();
    assert_eq!(kept.next_part(u64::MAX).unwrap(), body);
}

#[tokio::test]
async fn a_store_that_refuses_is_told_by_readiness_metrics_and_health() {
    let server = S3Server::start().await;
    server.set(Mood::RefusesAll(412, "PreconditionFailed"));
    let home = Home::with_s3(&server);
    let sidecar = home.start(&["--metrics-address=127.0.0.1:0"]).await;
    let refused = "spanplane_store_refused{cause=\"request_refused\"} ";
    let shown = |value: &str| {
        let metrics = sidecar.metrics().text().unwrap();
        metrics.contains(&format!("{refused}{value}"))
    };
    until("it is refused", || shown("1")).await;
    let records = reconciles("t", 2);
    home.emit_all(&records).await;
    until("an upload failed", || {
        let metrics = sidecar.metrics().text().unwrap();
        counted(&metrics, "spanplane_store_failures_total") > 0
    })
    .await;
    let answer = get(sidecar.metrics_address(), "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.contains("store refused (request_refused)"),
        "{answer}"
    );
    server.set(Mood::Works);
    until("it is taken", || shown("0")).await;
    let answer = get(sidecar.metrics_address(), "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stop(sidecar).await;
    assert_all_payloads_stored(&records, &home.documents().await);
}

#[tokio::test]
async fn a_part_that_can_not_be_joined_is_counted_and_shown_and_joined_in_the_end() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    let mut records = reconcile("t").to_vec();
    home.play(&[], &records).await;
    server.set(Mood::Hides("xr-of-t/"));
    let sidecar = home.start(&[]).await;
    let late = message("t", 1, RecordKind::Response, r#"{"b":1}"#);
    home.emit_all(std::slice::from_ref(&late)).await;
    let unjoined = || {
        let note = StandingNote::read(&home.data_dir()).unwrap();
        note.and_then(|note| note.unjoined)
    };
    until("it is noted", || unjoined().is_some()).await;
    assert!(!unjoined().unwrap().advice.is_empty());
    let metrics = sidecar.metrics().text().unwrap();
    assert!(counted(&metrics, "spanplane_store_failures_total") > 2);
    server.set(Mood::Works);
    until("it is joined", || unjoined().is_none()).await;
    stop(sidecar).await;
    records.push(late);
    assert_all_payloads_stored(&records, &home.documents().await);
}

#[tokio::test]
async fn an_object_that_the_loss_of_power_damaged_is_made_again_from_its_messages() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    let records = reconciles("t", 4);
    fill_spool(&home.data_dir(), &records).await;
    let spool: Vec<_> = files_in(&home.data_dir().join("spool"));
    server.set(Mood::Unavailable);
    let sidecar = home.start(&["--shutdown-timeout=10ms"]).await;
    let objects = home.data_dir().join("outbox/objects");
    let parcels = || -> Vec<_> {
        let files = files_in(&objects).into_iter();
        let is_parcel =
            |(path, _): &(PathBuf, _)| path.extension().is_some_and(|it| it == "parcel");
        files.filter(is_parcel).collect()
    };
    until("all objects wait", || parcels().len() == 4).await;
    drop(sidecar.run_until(std::future::ready(())).await);

    // As if the power had failed before anything but the objects and the messages was synced.
    std::fs::remove_dir_all(home.data_dir().join("spool")).unwrap();
    std::fs::remove_dir_all(home.data_dir().join("outbox/index")).unwrap();
    std::fs::remove_file(home.data_dir().join("history.jsonl")).unwrap();
    std::fs::create_dir(home.data_dir().join("spool")).unwrap();
    for (path, content) in spool {
        std::fs::write(path, content).unwrap();
    }
    for (path, mut content) in parcels() {
        content[..16].fill(0);
        std::fs::write(path, content).unwrap();
    }
    server.set(Mood::Works);
    home.play(&[], &[]).await;
    assert_all_payloads_stored(&records, &home.documents().await);
    let states = states(&server);
    assert_eq!(states.len(), 4);
    assert!(states.values().all(|state| state == "stored"), "{states:?}");
}

#[tokio::test]
async fn nothing_is_equal_to_what_an_earlier_process_redacted_by_other_rules() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    // The same reconcile again and again.
    let mut records = capture("steady-idle");
    let later = records.split_off(records.len() / 2);
    fill_spool(&home.data_dir(), &records).await;
    let spool: Vec<_> = files_in(&home.data_dir().join("spool"));
    server.set(Mood::Unavailable);
    let sidecar = home.start(&["--shutdown-timeout=10ms"]).await;
    let objects = home.data_dir().join("outbox/objects");
    until("objects wait", || !files_in(&objects).is_empty()).await;
    drop(sidecar.run_until(std::future::ready(())).await);

    // As if it had been killed before it could note that the messages are done.
    for folder in ["spool", "outbox/index"] {
        std::fs::remove_dir_all(home.data_dir().join(folder)).unwrap();
    }
    std::fs::remove_file(home.data_dir().join("history.jsonl")).unwrap();
    std::fs::create_dir(home.data_dir().join("spool")).unwrap();
    for (path, content) in spool {
        std::fs::write(path, content).unwrap();
    }
    server.set(Mood::Works);
    home.play(&["--redact=/meta/tag"], &later).await;

    let since = later[0].received_at.rfc3339();
    let documents = home.documents().await;
    let lines = server.index_lines().into_iter();
    let lines: Vec<_> = lines
        .filter(|line| line["started_at"].as_str().unwrap() > since.as_str())
        .collect();
    assert!(lines.len() > 1, "{}", lines.len());
    assert!(
        lines
            .iter()
            .any(|line| line["object"]["state"] == "unchanged")
    );
    for line in lines {
        let key = line["object"]["key"].as_str().unwrap();
        let document: serde_json::Value = serde_json::from_str(&documents[key]).unwrap();
        let request = line["steps"][0]["request"]["pointer"].as_str().unwrap();
        let tag = document.pointer(&format!("{request}/meta/tag")).unwrap();
        assert_eq!(tag, "**REDACTED**", "{line}");
    }
}

/// The files in a folder, with what is in them.
fn files_in(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    // Some may go meanwhile.
    let read = |path: PathBuf| Some((path.clone(), std::fs::read(path).ok()?));
    paths.filter_map(read).collect()
}

#[tokio::test]
async fn a_damaged_file_that_is_to_be_sent_again_holds_nothing_up_and_stays() {
    let server = S3Server::start().await;
    let home = Home::with_s3(&server);
    let retry = quarantine_of(&home).join("retry");
    std::fs::create_dir_all(&retry).unwrap();
    std::fs::write(retry.join("1-7.parcel"), "damaged").unwrap();
    let records = reconciles("t", 2);
    let metrics = home.play(&[], &records).await;
    assert_eq!(counted(&metrics, "spanplane_objects_dropped_total"), 0);
    assert_all_payloads_stored(&records, &home.documents().await);
    assert_eq!(quarantined(&home).len(), 1);
}
