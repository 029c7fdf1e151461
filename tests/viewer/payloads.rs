//! Payloads: where the links in spans lead, and what is taken away from there.

use spanplane::{capture::step_of, line::Line, record::RecordKind};

use crate::{
    setup::Served,
    support::{Home, capture, s3::S3Server},
};

fn open(line: &Line, pointer: &str) -> String {
    // As a link in a span has it.
    format!("/open?key={}&pointer={pointer}", line.object.key)
}

fn raw(line: &Line, pointer: &str) -> String {
    open(line, pointer).replacen("/open", "/raw", 1)
}

#[tokio::test]
async fn a_link_in_a_span_leads_to_the_payload_in_its_reconcile() {
    let served = Served::of_captures(&["dropper"]).await;
    let line = served.lines().await.remove(0);
    let page = served.page(&open(&line, "/steps/0/request")).await;
    assert!(page.text().contains("create request"), "{}", page.text());
    for link in [
        format!("/trace/{}", line.trace_id),
        format!("/trace/{}/step/0", line.trace_id),
        raw(&line, "/steps/0/request"),
    ] {
        assert!(
            page.links().contains(&link),
            "{link} is not among {:?}",
            page.links()
        );
    }
    let part = served
        .page(&open(
            &line,
            "/steps/0/request/observed/composite/resource/metadata",
        ))
        .await;
    assert!(part.text().contains("name : assets"), "{}", part.text());
    let whole = served.page(&open(&line, "")).await;
    assert!(whole.text().contains("auto-ready"), "{}", whole.text());
    let found = served
        .page(&format!("{}&q=ASSETS", open(&line, "/steps/0/request")))
        .await;
    assert!(
        found
            .text()
            .contains("observed.composite.resource.metadata.name"),
        "{}",
        found.text()
    );
    for missing in ["/steps/9/request", "/steps/0/request/nothing", "/steps/x"] {
        assert_eq!(
            served.get(&open(&line, missing)).await.status.as_u16(),
            404,
            "{missing}"
        );
    }
}

#[tokio::test]
async fn what_is_taken_away_is_what_came() {
    let served = Served::of_captures(&["dropper"]).await;
    let records = capture("dropper");
    let lines = served.lines().await;
    let line = lines.iter().find(|line| line.changed).unwrap();
    let is_first = |record: &&spanplane::record::Record| {
        let step = step_of(record);
        step.meta.trace_id == line.trace_id
            && step.meta.step_index == 0
            && record.kind == RecordKind::Request
    };
    let sent = step_of(records.iter().find(is_first).unwrap()).payload;
    let answer = served.page(&raw(line, "/steps/0/request")).await;
    assert_eq!(answer.body.as_bytes(), &sent[..]);
    assert_eq!(answer.header("content-type"), "application/json");
    let saved = served
        .page(&format!("{}&download=yes", raw(line, "/steps/0/request")))
        .await;
    assert!(
        saved
            .header("content-disposition")
            .starts_with("attachment; filename=\"")
    );
    let part = served
        .page(&raw(
            line,
            "/steps/0/request/observed/composite/resource/metadata/name",
        ))
        .await;
    assert_eq!(part.body, "\"assets\"");
}

#[tokio::test]
async fn a_call_can_be_made_again_without_secrets() {
    let served = Served::of_captures(&["secrets"]).await;
    let lines = served.lines().await;
    let mut encoded = 0;
    for line in lines.iter().filter(|line| line.changed) {
        for step in &line.steps {
            let Some(request) = &step.request else {
                continue;
            };
            let call = served
                .page(&format!("{}&as=call", raw(line, &request.pointer)))
                .await;
            let stored = served.page(&raw(line, &request.pointer)).await;
            let [told, known] =
                [&call, &stored].map(|answer| answer.body.matches("canary-s3cr3t").count());
            assert_eq!(told, known, "{}", line.trace_id);
            // "**REDACTED**" in base64.
            encoded += call.body.matches("KipSRURBQ1RFRCoq").count();
            let _: serde_json::Value = serde_json::from_str(&call.body).unwrap();
        }
    }
    assert!(encoded > 0, "nothing was redacted where bytes belong");
}

#[tokio::test]
async fn a_store_that_can_signs_addresses() {
    let bucket = S3Server::start().await;
    let home = Home::with_s3(&bucket);
    home.play(&[], &capture("dropper")).await;
    let served = Served::of_home(home).await;
    let line = served.lines().await.remove(0);
    let page = served.page(&open(&line, "/steps/0/request")).await;
    let signed = format!("/open/signed?key={}", line.object.key);
    assert!(page.links().contains(&signed), "{:?}", page.links());
    let answer = served.get(&signed).await;
    assert_eq!(answer.status.as_u16(), 307);
    let object = reqwest::get(answer.header("location")).await.unwrap();
    assert_eq!(object.status().as_u16(), 200);
    let stored = object.bytes().await.unwrap();
    assert_eq!(
        stored.get(..4),
        Some(&[0x28, 0xB5, 0x2F, 0xFD][..]),
        "this is no zstd"
    );

    let plain = Served::of_captures(&["dropper"]).await;
    assert!(
        !plain
            .page(&open(&line, ""))
            .await
            .body
            .contains("/open/signed")
    );
    assert_eq!(plain.get(&signed).await.status.as_u16(), 404);
}

#[tokio::test]
async fn a_payload_that_is_gone_says_when_and_why() {
    let home = Home::new();
    home.play(&[], &capture("dropper")).await;
    let folder = home.data_dir().join("store");
    let served = Served::of_home(home).await;
    let line = served.lines().await.remove(0);
    std::fs::remove_file(folder.join(&line.object.key)).unwrap();
    for path in [
        open(&line, "/steps/0/request"),
        format!("/trace/{}", line.trace_id),
    ] {
        let page = served.page(&path).await.text();
        assert!(
            page.contains("is not in the store any more: it held what began at 2026-11-16T"),
            "{page}"
        );
        assert!(page.contains("--retention"), "{page}");
    }
    let step = served
        .get(&format!("/trace/{}/step/0", line.trace_id))
        .await;
    assert_eq!(step.status.as_u16(), 410);
    assert_eq!(
        served
            .get(&raw(&line, "/steps/0/request"))
            .await
            .status
            .as_u16(),
        410
    );
}

#[tokio::test]
async fn a_link_to_a_part_leads_to_the_object_that_the_part_was_merged_into() {
    let served = Served::of_captures(&["network"]).await;
    let lines = served.lines().await;
    let is_whole = |line: &&Line| line.steps.len() == 4 && line.object.key.contains(&line.trace_id);
    let line = lines.iter().find(is_whole).unwrap();
    // The key that the last two steps had while they were a part of their own.
    let (folder, _) = line.object.key.rsplit_once('/').unwrap();
    let began = line.steps[2].started_at.time_of_day();
    let part = format!("{folder}/{began}-{}.json.zst", line.trace_id);
    let asked = |page: &str, pointer: &str| format!("/{page}?key={part}&pointer={pointer}");
    for page in ["open", "raw"] {
        let answer = served.get(&asked(page, "/steps/0/response/desired")).await;
        assert_eq!(answer.status.as_u16(), 307, "{}", answer.text());
        let now = answer.header("location");
        assert!(now.contains(&line.object.key), "{now}");
        assert!(now.contains("/steps/2/response/desired"), "{now}");
        assert!(served.get(now).await.status.is_success());
    }
    // Which one this was is not certain.
    let page = served.get(&asked("open", "/steps/1/request")).await;
    let text = page.text();
    assert!(text.contains("is not in the store any more"), "{text}");
    assert!(page.links().contains(&format!("/trace/{}", line.trace_id)));
}

#[tokio::test]
async fn a_key_that_nobody_knows_has_no_past() {
    let served = Served::of_captures(&["dropper"]).await;
    let key = served.lines().await.remove(0).object.key;
    let (front, _) = key.rsplit_once('-').unwrap();
    // The second is only the beginning of an id that is known.
    let never = "v1/reconciles/K.g/_/n/2026-11-16/043646.133-t.json.zst";
    for key in [never, &format!("{front}.json.zst")] {
        for page in ["open", "raw"] {
            let answer = served.get(&format!("/{page}?key={key}")).await;
            let text = answer.text();
            assert_eq!(answer.status.as_u16(), 404, "{page} {key}: {text}");
            assert!(text.contains("No such reconcile is known"), "{text}");
            assert!(text.contains("Either it expired long ago"), "{text}");
            assert!(!text.contains("any more"), "{text}");
        }
    }
}
