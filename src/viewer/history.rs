//! `/xr/{kind}/{namespace}/{name}`: what changed over time, and what went back and forth.

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, State},
    response::Html,
};
use maud::{Markup, html};

use super::{
    Viewer,
    address::{self, NO_NAMESPACE, Params},
    failure::Failure,
    gist::in_short,
    list::trouble,
    page::Page,
    texts::StepTexts,
    words::{Badge, clock, lasted, plain, several, short_id, sign_of, when},
};
use crate::{
    answers::{self, Deed, Mark, ResourceChange, compare, is_bookkeeping},
    archive::{Query, SubjectFilter},
    json::{Change, Json, Scalar, Segment, scalar},
    line::Line,
    text::cut,
    time::Timestamp,
};

/// On a page.
const ENTRIES: usize = 20;
/// Of payloads that are read for a page; entries beyond it link to what changed.
const PAYLOAD_BYTES: usize = 8 * 1024 * 1024;
/// Resources and fields that are told of an entry.
const MAX_RESOURCES: usize = 6;
const MAX_FIELDS: usize = 4;
const VALUE_BYTES: usize = 48;

/// A reconcile, with what it observed and desired, if that was read.
struct Entry {
    line: Line,
    ends: Option<StepTexts>,
}

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Html<String>, Failure> {
    let params = Params::parse(query.as_deref());
    let until = params.text("until").map(|text| {
        Timestamp::parse_rfc3339(text).ok_or_else(|| Failure::Odd(format!("{text:?} is no time.")))
    });
    let (bare_kind, group) = kind.split_once('.').unwrap_or((&kind, ""));
    let query = Query {
        until: until.transpose()?,
        changed: Some(true),
        subject: SubjectFilter {
            kind: Some(bare_kind.to_owned()),
            group: Some(group.to_owned()),
            namespace: Some(
                Some(namespace.as_str())
                    .filter(|n| *n != NO_NAMESPACE)
                    .unwrap_or_default()
                    .to_owned(),
            ),
            name: Some(name.clone()),
            uid: None,
        },
        ..Query::default()
    };
    // One more, that the last one is held against.
    let found = viewer.lines(query, ENTRIES + 1).await?;
    if found.lines.is_empty() && found.errors.is_empty() {
        return Err(Failure::Missing {
            what: format!(
                "No reconcile of {} {} is known that changed anything.",
                plain(&kind),
                plain(&name)
            ),
            advice: "It may be older than what the store keeps, or its name may be written in another way.",
        });
    }
    let older = (found.lines.len() > ENTRIES)
        .then(|| found.lines.get(ENTRIES - 1))
        .flatten();
    let older = older.map(|line| line.started_at.rfc3339());
    let _desk = viewer.take_desk().await;
    let entries = viewer.read_entries(found.lines).await;
    let resource = params.raw("resource");
    let path = format!(
        "/xr/{}/{}/{}",
        address::encode(&kind),
        address::encode(&namespace),
        address::encode(&name)
    );
    let all = format!(
        "/?kind={}&name={}",
        address::encode(&kind),
        address::encode(&name)
    );
    let now = viewer.clock.now();
    let page = Page {
        title: format!("{} {}", plain(bare_kind), plain(&name)),
        trail: vec![("/".to_owned(), "Reconciles".to_owned())],
    };
    let body = page.render(&html! {
        div class="title-row" {
            h1 { span class="kind" { (plain(bare_kind)) } " " span class="name" { (plain(&name)) } }
            @if namespace != NO_NAMESPACE { span class="quiet" { (plain(&namespace)) } }
            nav class="ways" aria-label="More of it" {
                a class="button quiet" href=(all) { "All its reconciles" }
            }
        }
        @if let Some(resource) = resource {
            p class="quiet" {
                "Only what changed of " code { (plain(if resource.is_empty() { &name } else { resource })) } ". "
                a href=(path) { "Everything" }
            }
        } @else {
            p class="quiet" { "Every reconcile that differs from the one before, the newest first." }
        }
        (trouble(&found.errors))
        ol class="history" {
            @for (place, entry) in entries.iter().enumerate().take(ENTRIES) {
                (entry_of(entry, entries.get(place + 1), resource, now))
            }
        }
        @if let Some(older) = older {
            nav class="pages" aria-label="Pages" {
                a class="button quiet" rel="next" href=(params.with(&path, "until", &older)) { "Older →" }
            }
        }
    });
    Ok(Html(body.into_string()))
}

impl Viewer {
    async fn read_entries(&self, lines: Vec<Line>) -> Vec<Entry> {
        let mut left = PAYLOAD_BYTES;
        let mut entries = Vec::with_capacity(lines.len());
        for line in lines {
            let payloads = line
                .steps
                .iter()
                .flat_map(|step| [&step.request, &step.response]);
            let bytes: u64 = payloads.flatten().map(|payload| payload.size).sum();
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let fits = bytes <= left;
            let ends = if fits {
                self.ends(&line).await.ok()
            } else {
                None
            };
            left = left.saturating_sub(bytes);
            entries.push(Entry { line, ends });
        }
        entries
    }
}

fn entry_of(
    entry: &Entry,
    before: Option<&Entry>,
    resource: Option<&str>,
    now: Timestamp,
) -> Markup {
    let line = &entry.line;
    let both = before.and_then(|before| Some((before.ends.as_ref()?, entry.ends.as_ref()?)));
    let differs = |of: fn(&StepTexts) -> Option<answers::State<'_>>| {
        let (before, after) = both?;
        told(of(before).as_ref(), of(after).as_ref(), line, resource)
    };
    let desired = differs(StepTexts::returned);
    let observed = differs(StepTexts::observed);
    let is_about_other =
        resource.is_some() && desired.is_none() && observed.is_none() && both.is_some();
    if is_about_other {
        return html! {};
    }
    html! {
        li class=[(line.flapping_count > 0).then_some("flap")] {
            div class="entry-head" {
                a href=(address::trace(&line.trace_id)) { (when(line.started_at, now)) }
                span class="exact" { (clock(line.started_at)) }
                (Badge::of_status(line.status))
                @if line.flapping_count > 0 {
                    span class="badge warn" { span class="sign" aria-hidden="true" { "↺" } "flap" }
                }
                span class="exact" { (lasted(Some(line.duration_ms))) }
                code { (short_id(&line.trace_id)) }
                @if before.is_some() { a href=(address::changes(&line.trace_id)) { "All that changed" } }
            }
            p class="points" { @for point in in_short(line) { (point) " " } }
            @if before.is_none() {
                p class="quiet" { "The first that is known." }
            } @else if both.is_some() && desired.is_none() && observed.is_none() {
                p class="quiet" { "The same, but for what changes with every write." }
            }
            @if let Some(desired) = desired { h2 { "Desired" } (desired) }
            @if let Some(observed) = observed { h2 { "Observed" } (observed) }
        }
    }
}

/// What differs, in a few lines; `None` if nothing does.
fn told(
    before: Option<&answers::State<'_>>,
    after: Option<&answers::State<'_>>,
    line: &Line,
    resource: Option<&str>,
) -> Option<Markup> {
    let (before, after) = (before?, after?);
    let changes: Vec<_> = compare(before, after)
        .into_iter()
        .filter(|change| resource.is_none_or(|resource| resource == change.name))
        .filter(|change| change.deed != Deed::Changed || fields_of(change).next().is_some())
        .collect();
    if changes.is_empty() {
        return None;
    }
    let more = changes.len().saturating_sub(MAX_RESOURCES);
    Some(html! {
        ul class="brief" {
            @for change in changes.iter().take(MAX_RESOURCES) { li { (brief(change, line)) } }
            @if more > 0 { li class="quiet" { "and " (several(more, "resource")) " more" } }
        }
    })
}

fn fields_of<'c>(
    change: &'c ResourceChange<'_>,
) -> impl Iterator<Item = (String, String)> + use<'c> {
    let fields = change.fields.iter();
    let fields = fields.filter(|field| !is_bookkeeping(&field.path) && !is_clockwork(field));
    fields.map(|field| {
        let sides =
            [field.before, field.after].map(|side| side.map_or("absent".to_owned(), value_of));
        (
            cut(&field.path.to_string(), 2 * VALUE_BYTES).into_owned(),
            sides.join(" → "),
        )
    })
}

/// Whether a field tells only that something else changed, and when.
fn is_clockwork(field: &Change<'_>) -> bool {
    let last = field.path.0.last();
    matches!(last, Some(Segment::Member(name)) if name == "lastTransitionTime" || name == "observedGeneration")
}

fn brief(change: &ResourceChange<'_>, line: &Line) -> Markup {
    let mark = match change.deed {
        Deed::Added => Mark::Added,
        Deed::Changed => Mark::Changed,
        Deed::Removed => Mark::Dropped,
    };
    let name = if change.name.is_empty() {
        &line.subject.name
    } else {
        change.name
    };
    let fields: Vec<_> = fields_of(change).collect();
    html! {
        span class={ "c " (mark.as_str()) } {
            span class="node" aria-hidden="true" { (sign_of(mark)) }
            span class="sr" { (mark.as_str()) " " }
        }
        a class="name" href=(address::story(&line.trace_id, change.name)) { (plain(name)) }
        @for (path, values) in fields.iter().take(MAX_FIELDS) {
            span class="brief-field" { code class="path" { (plain(path)) } " " (plain(values)) }
        }
        @if fields.len() > MAX_FIELDS {
            span class="brief-field quiet" {
                "and " (several(fields.len() - MAX_FIELDS, "field")) " more"
            }
        }
    }
}

fn value_of(value: &Json<'_>) -> String {
    match value {
        Json::Object(members) if !members.is_empty() => several(members.len(), "member"),
        Json::List(items) if !items.is_empty() => several(items.len(), "item"),
        Json::Text(text) => {
            let text = Json::Text(cut(text, VALUE_BYTES));
            match scalar(&text) {
                Scalar::Line(_, text) => text.into_owned(),
                Scalar::Block(_, text) => text.replace('\n', "⏎"),
            }
        }
        other => match scalar(other) {
            Scalar::Line(_, text) => text.into_owned(),
            Scalar::Block(..) => String::new(),
        },
    }
}
