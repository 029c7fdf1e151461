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
    diff::MAX_TOLD,
    failure::Failure,
    gist::in_short,
    list::trouble,
    page::Page,
    payload_bytes,
    texts::StepTexts,
    words::{Badge, clock, lasted, plain, several, short_id, short_name, sign_of, when},
};
use crate::{
    answers::{self, Deed, Mark, ResourceChange, compare_up_to, is_bookkeeping},
    archive::{Query, SubjectFilter},
    json::{Change, Json, Scalar, Segment, Values, scalar},
    line::Line,
    text::cut,
    time::Timestamp,
};

/// On a page.
const ENTRIES: usize = 20;
/// Of payloads that are looked through for a page, so that it does not take for ever; entries
/// beyond it link to what changed.
const PAYLOAD_BYTES: u64 = 64 * 1024 * 1024;
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
    // Fewer than asked for if they are large.
    let shown = if found.has_more {
        found.lines.len().saturating_sub(1).max(1)
    } else {
        found.lines.len()
    };
    let shown = shown.min(ENTRIES);
    let has_older = found.has_more || found.lines.len() > shown;
    let older = found.lines.get(shown.saturating_sub(1));
    let older = older.filter(|_| has_older);
    let older = older.map(|line| line.started_at.rfc3339());
    let lines: Vec<_> = found.lines.iter().collect();
    let desk = viewer.take_desk("", &lines).await;
    let resource = params.raw("resource");
    // Without memory for payloads, what changed is not known.
    let may_read = desk.is_ok();
    let entries = viewer.read_entries(found.lines, resource, may_read).await;
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
            @for (place, entry) in entries.iter().enumerate().take(shown) {
                (viewer.entry_of(entry, entries.get(place + 1), has_older, resource, now))
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
    async fn read_entries(
        &self,
        lines: Vec<Line>,
        resource: Option<&str>,
        may_read: bool,
    ) -> Vec<Entry> {
        let mut left = if may_read { PAYLOAD_BYTES } else { 0 };
        let mut held = 0;
        let mut entries = Vec::with_capacity(lines.len());
        for line in lines {
            let bytes = payload_bytes(&line);
            let ends = if may_read && bytes <= left {
                self.ends(&line, resource, held).await.ok()
            } else {
                None
            };
            left = left.saturating_sub(bytes);
            held += ends.as_ref().map_or(0, StepTexts::bytes);
            entries.push(Entry { line, ends });
        }
        entries
    }

    fn entry_of(
        &self,
        entry: &Entry,
        before: Option<&Entry>,
        has_older: bool,
        resource: Option<&str>,
        now: Timestamp,
    ) -> Markup {
        let line = &entry.line;
        let both = before.and_then(|before| Some((before.ends.as_ref()?, entry.ends.as_ref()?)));
        let differs = |of: Side| {
            let Some((before, after)) = both else {
                return Told::Unknown;
            };
            let values = self.values();
            match (of(before, &values), of(after, &values)) {
                (Some(before), Some(after)) => told(&before, &after, line, resource),
                _ => Told::Unknown,
            }
        };
        let desired = differs(StepTexts::returned);
        let observed = differs(StepTexts::observed);
        let is_nothing = matches!((&desired, &observed), (Told::Nothing, Told::Nothing));
        if resource.is_some() && is_nothing {
            // It is about another.
            return html! {};
        }
        let is_unknown = [&desired, &observed].map(|told| matches!(told, Told::Unknown));
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
                @if before.is_none() && !has_older {
                    p class="quiet" { "The first that is known." }
                } @else if is_nothing {
                    p class="quiet" { "The same, but for what changes with every write." }
                } @else if is_unknown == [true, true] {
                    p class="quiet" {
                        "What changed is not told here: payloads are missing, or too large to be compared."
                    }
                }
                @if let Told::Changes(desired) = desired { h2 { "Desired" } (desired) }
                @if let Told::Changes(observed) = observed { h2 { "Observed" } (observed) }
            }
        }
    }
}

/// One of the states that the payloads of a reconcile tell of.
type Side = for<'t> fn(&'t StepTexts, &Values) -> Option<answers::State<'t>>;

/// What is known of a difference.
enum Told {
    Unknown,
    Nothing,
    Changes(Markup),
}

/// What differs, in a few lines.
fn told(
    before: &answers::State<'_>,
    after: &answers::State<'_>,
    line: &Line,
    resource: Option<&str>,
) -> Told {
    let changes: Vec<_> = compare_up_to(before, after, MAX_TOLD)
        .into_iter()
        .filter(|change| resource.is_none_or(|resource| resource == change.name))
        .filter(|change| {
            let is_cut = change.fields.len() < change.field_count;
            change.deed != Deed::Changed || is_cut || fields_of(change).next().is_some()
        })
        .collect();
    if changes.is_empty() {
        return Told::Nothing;
    }
    let more = changes.len().saturating_sub(MAX_RESOURCES);
    Told::Changes(html! {
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
    let name = short_name(if change.name.is_empty() {
        &line.subject.name
    } else {
        change.name
    });
    let count = fields_of(change).count() + (change.field_count - change.fields.len());
    let fields: Vec<_> = fields_of(change).take(MAX_FIELDS).collect();
    html! {
        span class={ "c " (mark.as_str()) } {
            span class="node" aria-hidden="true" { (sign_of(mark)) }
            span class="sr" { (mark.as_str()) " " }
        }
        a class="name" href=(address::story(&line.trace_id, change.name)) { (name) }
        @for (path, values) in &fields {
            span class="brief-field" { code class="path" { (plain(path)) } " " (plain(values)) }
        }
        @if count > fields.len() {
            span class="brief-field quiet" {
                "and " (several(count - fields.len(), "field")) " more"
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
