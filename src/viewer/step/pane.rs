//! A payload beside another: its YAML, a search, and ways to take it away.

use maud::{Markup, html};

use crate::{
    json::Json,
    line::{Line, PayloadRef},
    text::cut,
    viewer::{
        address,
        payload::Tree,
        texts::Text,
        words::{plain, several, size},
    },
};

/// About as much as a person scrolls through.
const LINES: usize = 1_200;
/// Of what is no JSON.
const TEXT_BYTES: usize = 64 * 1024;

pub(super) fn render(line: &Line, title: &str, at: Option<&PayloadRef>, text: &Text) -> Markup {
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
                            (several(usize::try_from(at.redacted).unwrap_or(usize::MAX), "value")) " redacted"
                        }
                    }
                    (tools(key, &at.pointer))
                }
            }
            @match (text, at) {
                (Text::Json(json), Some(at)) => (tree(json, key, &at.pointer)),
                (Text::Other(other), _) => { p class="nothing" { "This is no JSON." } pre class="text" { (plain(&cut(other, TEXT_BYTES))) } },
                (Text::Base64(bytes), _) => { p class="nothing" { "This is not even text; in base64:" } pre class="text" { (cut(bytes, TEXT_BYTES)) } },
                _ => p class="nothing" { "There is none." },
            }
        }
    }
}

/// Search, copy, fold; and addresses.
fn tools(key: &str, pointer: &str) -> Markup {
    html! {
        form class="find" method="get" action="/open" role="search" aria-label="Search this payload" {
            input type="hidden" name="key" value=(key);
            input type="hidden" name="pointer" value=(pointer);
            input type="search" name="q" placeholder="Search" aria-label="Search this payload" autocomplete="off" data-search;
        }
        span class="tools" {
            button class="quiet" type="button" data-expand hidden { "Open all" }
            a href=(address::open(key, pointer)) { "Alone" }
            a href=(address::raw(key, pointer)) { "JSON" }
            a href={ (address::raw(key, pointer)) "&download=yes" } download { "Download" }
        }
    }
}

fn tree(json: &str, key: &str, pointer: &str) -> Markup {
    html! {
        @match Json::parse(json) {
            Ok(value) => (Tree { value: &value, place: Some((key, pointer)), lines: LINES, from: 0, is_open: false }),
            Err(_) => { p class="nothing" { "This JSON is nested too deeply to be shown." } pre class="text" { (plain(&cut(json, TEXT_BYTES))) } },
        }
    }
}
