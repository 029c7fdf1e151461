//! A payload beside another: its YAML, a search, and ways to take it away.

use maud::{Markup, Render as _, html};

use crate::{
    answers::Payload,
    json::{Json, Values},
    line::{Line, PayloadRef},
    viewer::{
        address,
        payload::{Tree, bare},
        words::{several, size},
    },
};

/// About as much as a person scrolls through.
const LINES: usize = 1_200;

pub(super) fn render(
    line: &Line,
    title: &str,
    at: Option<&PayloadRef>,
    payload: Payload<'_>,
    values: &Values,
) -> Markup {
    let key = &line.object.key;
    let id = title.to_lowercase();
    html! {
        section class="pane" id=(id) aria-labelledby=(format!("{id}-title")) {
            div class="pane-head" {
                h2 id=(format!("{id}-title")) { (title) }
                @if let Some(at) = at {
                    span class="quiet" { (size(at.size)) }
                    @if at.redacted > 0 {
                        span class="badge quiet" {
                            (several(usize::try_from(at.redacted).unwrap_or(usize::MAX), "value"))
                            " redacted"
                        }
                    }
                    (tools(key, &at.pointer, &id))
                }
            }
            @match (payload, at) {
                (Payload::Json(json), Some(at)) => (tree(json, key, &at.pointer, values)),
                (Payload::Text(other), _) => (bare("This is no JSON.", other)),
                (Payload::Base64(bytes), _) => (bare("This is not even text; in base64:", bytes)),
                _ => p class="nothing" { "There is none." },
            }
        }
    }
}

/// Search, copy, fold; and addresses.
fn tools(key: &str, pointer: &str, side: &str) -> Markup {
    let search = format!("Search the {side}");
    html! {
        form class="find" method="get" action="/open" role="search" aria-label=(search) {
            input type="hidden" name="key" value=(key);
            input type="hidden" name="pointer" value=(pointer);
            input type="search" name="q" placeholder="Search" aria-label=(search)
                autocomplete="off" data-search;
        }
        span class="tools" {
            button class="quiet" type="button" data-expand hidden { "Open all" }
            a href=(address::open(key, pointer)) { "Alone" }
            a href=(address::raw(key, pointer)) { "JSON" }
            a href={ (address::raw(key, pointer)) "&download=yes" } download { "Download" }
        }
    }
}

fn tree(json: &str, key: &str, pointer: &str, values: &Values) -> Markup {
    let parsed = Json::parse_within(json, values);
    if values.is_exceeded() {
        return html! {
            p class="nothing" {
                "This has too many values to be shown at once. "
                a href=(address::open(key, pointer)) { "Look at it part by part" }
            }
        };
    }
    let Ok(value) = parsed else {
        return bare("This JSON is nested too deeply to be folded.", json);
    };
    let tree = Tree {
        value: &value,
        place: Some((key, pointer)),
        lines: LINES,
        from: 0,
        is_open: false,
    };
    tree.render()
}
