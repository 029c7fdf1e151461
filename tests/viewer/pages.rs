//! What each page says, on what a real Crossplane emitted.

use spanplane::line::{Line, Status};

use crate::setup::Served;

fn find(lines: &[Line], is_it: impl Fn(&&Line) -> bool) -> &Line {
    lines.iter().find(is_it).unwrap()
}

#[tokio::test]
async fn the_list_is_narrowed_and_paged() {
    let served = Served::of_captures(&["dropper", "broken"]).await;
    let lines = served.lines().await;
    let rows = |body: &str| body.matches("<th scope=\"row\"").count();
    let first = served.page("/").await;
    assert_eq!(rows(&first.body), 50);
    let older = first
        .links()
        .into_iter()
        .find(|link| link.starts_with("/?until="))
        .unwrap();
    let second = served.page(&older).await;
    assert_eq!(rows(&second.body), lines.len().min(100) - 50);

    let failed = lines.iter().filter(|line| line.status.is_failure()).count();
    assert_eq!(
        rows(&served.page("/?status=failed").await.body),
        failed.min(50)
    );
    let dropped = lines.iter().filter(|line| line.dropped_count > 0).count();
    let answer = served.page("/?dropped=yes&kind=bucketset").await;
    assert_eq!(rows(&answer.body), dropped);
    assert!(
        answer
            .text()
            .contains("tidy drops bucket-b, which exists and will be deleted")
    );
    assert_eq!(rows(&served.page("/rows?dropped=yes").await.body), dropped);
    let none = served.page("/?name=nobody").await;
    assert!(none.text().contains("No reconcile fits these filters"));
    assert_eq!(served.get("/?status=great").await.status.as_u16(), 400);

    let is_asked = |line: &&Line| matches!(line.status, Status::Fatal | Status::Error);
    let several = lines.iter().filter(is_asked).count();
    let answer = served.page("/?status=error&status=fatal").await;
    assert_eq!(rows(&answer.body), several.min(50));
    // What is asked for stays so when the form is sent again.
    let option = "<option value=\"error,fatal\" selected>error or fatal</option>";
    assert!(answer.body.contains(option), "{}", answer.body);
    let again = served.page("/?status=error,fatal").await;
    assert_eq!(rows(&again.body), several.min(50));
}

#[tokio::test]
async fn the_list_leads_to_a_reconcile_by_its_id() {
    let served = Served::of_captures(&["dropper"]).await;
    let id = served.lines().await.remove(0).trace_id;
    let (beginning, _) = id.split_at(8);
    for asked in [&id, beginning] {
        let answer = served.get(&format!("/?kind=&id=+{asked}")).await;
        assert_eq!(answer.status.as_u16(), 303, "{}", answer.text());
        assert_eq!(answer.header("location"), format!("/trace/{id}"));
    }
    let unknown = served.get("/?id=zzzz").await;
    assert_eq!(unknown.status.as_u16(), 404);
    assert!(unknown.text().contains("begins with zzzz"));
}

#[tokio::test]
async fn the_matrix_tells_what_each_step_did() {
    let served = Served::of_captures(&["dropper"]).await;
    let lines = served.lines().await;
    let line = find(&lines, |line| {
        line.dropped.iter().any(|dropped| dropped.observed)
    });
    let page = served.page(&format!("/trace/{}", line.trace_id)).await;
    let rows: Vec<_> = page
        .body
        .split("<tr")
        .filter(|row| row.contains("class=\"fate\""))
        .collect();
    // The header, the composite, three buckets.
    assert_eq!(rows.len(), 5, "{}", page.body);
    let row = rows.iter().find(|row| row.contains(">bucket-b<")).unwrap();
    let marks: Vec<_> = row
        .split("<td class=\"")
        .skip(1)
        .map(|cell| cell.split('"').next().unwrap().trim_end().to_owned())
        .collect();
    assert_eq!(
        marks,
        [
            "observed",
            "c added from news",
            "c dropped to",
            "c absent",
            "c absent",
            "fate"
        ]
    );
    assert!(row.contains("delete"), "{row}");

    // The cell leads to what that step did, as a page and as a part of one.
    let cell = page
        .links()
        .into_iter()
        .find(|link| link.ends_with("/step/1?resource=bucket-b"));
    let cell = cell.unwrap();
    let change = served.page(&cell).await.text();
    assert!(change.contains("What it did"), "{change}");
    assert!(change.contains("dropped bucket-b ConfigMap"), "{change}");
    let part = served.page(&cell.replace('?', "/change?")).await;
    assert!(!part.body.contains("<html") && part.text().contains("dropped bucket-b"));

    let only = served
        .page(&format!("/trace/{}?rows=dropped", line.trace_id))
        .await;
    assert!(only.body.contains(">bucket-b<") && !only.body.contains(">bucket-c<"));
}

#[tokio::test]
async fn a_step_that_failed_is_marked_and_explained() {
    let served = Served::of_captures(&["broken"]).await;
    let lines = served.lines().await;
    let line = find(&lines, |line| line.status == Status::Fatal);
    let page = served.page(&format!("/trace/{}", line.trace_id)).await;
    assert!(page.body.contains("class=\"step failed\""));
    assert!(page.body.contains("c unknown lost failed"), "{}", page.body);
    let place = line
        .steps
        .iter()
        .position(|step| step.status == Status::Fatal)
        .unwrap();
    let message = &line.steps[place].facts.results[0].message;
    assert!(page.text().contains(message.as_str()), "{message}");
    let step = served
        .page(&format!("/trace/{}/step/{place}", line.trace_id))
        .await;
    assert!(
        step.text()
            .contains("It failed, so that nothing it returned is applied.")
    );
    let story = served
        .page(&format!("/trace/{}/resource?name=base", line.trace_id))
        .await;
    assert!(
        story
            .text()
            .contains("Nothing happens to it: the pipeline ended at step"),
        "{}",
        story.text()
    );
}

#[tokio::test]
async fn a_resource_has_its_story_and_its_subject_a_history() {
    let served = Served::of_captures(&["dropper"]).await;
    let lines = served.lines().await;
    let line = find(&lines, |line| {
        line.dropped.iter().any(|dropped| dropped.observed)
    });
    let story = served
        .page(&format!("/trace/{}/resource?name=bucket-b", line.trace_id))
        .await
        .text();
    for told in [
        "It will be deleted: step tidy drops it from the desired state",
        "does not observe it any more.",
        "create asks for it, and says that it is ready",
        "tidy drops it",
        "label does not ask for it",
    ] {
        assert!(story.contains(told), "{told} is not in {story}");
    }
    let unheard = served
        .get(&format!("/trace/{}/resource?name=nobody", line.trace_id))
        .await;
    assert_eq!(unheard.status, 404);
    let told = "asked for nobody in any reconcile that is known";
    assert!(unheard.text().contains(told), "{}", unheard.text());

    let history = served
        .page("/xr/BucketSet.stores.example.org/default/assets")
        .await;
    let text = history.text();
    assert!(history.body.contains("<li class=\"flap\">"));
    assert!(text.contains("↺ bucket-b went and came back"), "{text}");
    assert!(text.contains("spec.tidy false → true"), "{text}");
    let of_one = served
        .page("/xr/BucketSet.stores.example.org/default/assets?resource=bucket-b")
        .await;
    assert!(of_one.body.contains(">bucket-b</a>") && !of_one.text().contains("spec.tidy"));
    assert_eq!(
        served
            .get("/xr/BucketSet/default/nobody")
            .await
            .status
            .as_u16(),
        404
    );

    let changes = served
        .page(&format!("/trace/{}/changes", line.trace_id))
        .await
        .text();
    assert!(
        changes.contains("dropped bucket-b") && changes.contains("spec.tidy"),
        "{changes}"
    );
    let against = format!("/trace/{}/step/1?view=previous", line.trace_id);
    let against = served.page(&against).await.text();
    assert!(
        against.contains("Returned − dropped bucket-b ConfigMap"),
        "{against}"
    );
}

#[tokio::test]
async fn what_is_not_there_is_told_with_what_to_do() {
    let served = Served::of_captures(&["dropper"]).await;
    for (path, status, told) in [
        ("/nowhere", 404, "There is no such page"),
        (
            "/trace/zzzz",
            404,
            "no reconcile has an id that begins with zzzz",
        ),
        ("/trace/last/step/9", 404, "counted from 0"),
        ("/trace/last/step/x", 404, "counted from 0"),
        (
            "/open?key=nonsense",
            400,
            "A key begins with v1/reconciles/",
        ),
        ("/?until=yesterday", 400, "is no time to look for"),
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert!(answer.text().contains(told), "{path}: {}", answer.text());
    }
    let healthy = served.page("/healthz").await;
    assert_eq!(healthy.body, "ok\n");
}

#[tokio::test]
async fn what_is_not_there_any_more_was_seen_somewhere() {
    let served = Served::of_captures(&["network"]).await;
    let lines = served.lines().await;
    let deleting = find(&lines, |line| {
        line.resources
            .delete
            .contains(&"subnet-public-b".to_owned())
    });
    let newest = lines.iter().max_by_key(|line| line.started_at).unwrap();
    let of = |line: &Line| format!("/trace/{}/resource?name=subnet-public-b", line.trace_id);
    let story = served.page(&of(newest)).await;
    let text = story.text();
    assert!(text.contains("No step asks for it, and it does not exist."));
    assert!(text.contains("asked for it last, in"), "{text}");
    assert!(story.body.contains(&of(deleting)), "{}", story.body);
}
