//! What became of resources, field by field: what was, what is.
//!
//! Invariant: bounded in bytes, whatever the resources hold.

use maud::{Markup, PreEscaped, Render, html};

use super::{
    address,
    payload::Tree,
    words::{plain, several, short_name, sign_of},
};
use crate::{
    answers::{Deed, Mark, ResourceChange, is_bookkeeping},
    json::{Change, Json, Piece, Scalar, YamlSink, scalar, write_yaml},
    pace::breathe,
    text::cut,
};

/// Resources that are shown in full.
const MAX_RESOURCES: usize = 100;
/// Fields of a resource.
const MAX_FIELDS: usize = 100;
/// Fields of all resources of a comparison that are told; the others are counted.
pub(super) const MAX_TOLD: usize = 2_000;
/// Of HTML for all resources, and for the fields of one.
pub(super) const CARDS_BYTES: usize = 1024 * 1024;
const FIELDS_BYTES: usize = 256 * 1024;
/// Of a resource that was added or dropped.
const WHOLE_LINES: usize = 200;
/// Of a value that takes several.
const MAX_LINES: usize = 60;
/// Of a value on one line.
const MAX_BYTES: usize = 600;
/// Short enough to stand beside the other.
const INLINE_BYTES: usize = 60;
/// Texts of several lines that are compared line by line.
const COMPARED_BYTES: usize = 256 * 1024;
/// Lines that are the same, around those that are not.
const CONTEXT: usize = 2;

/// What became of resources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cards<'c> {
    pub(super) changes: &'c [ResourceChange<'c>],
    /// The reconcile in which the stories of these are told.
    pub(super) trace_id: &'c str,
    /// The name of the composite.
    pub(super) composite: &'c str,
    /// Leaves out what changes with every write.
    pub(super) without_bookkeeping: bool,
}

impl Render for Cards<'_> {
    fn render(&self) -> Markup {
        let told = self.changes.iter().filter(|change| self.tells(change));
        let (mut cards, mut shown) = (String::new(), 0);
        for change in told.clone().take(MAX_RESOURCES) {
            if cards.len() >= CARDS_BYTES {
                break;
            }
            cards.push_str(&self.card(change).into_string());
            shown += 1;
            breathe();
        }
        let more = told.count() - shown;
        html! {
            (PreEscaped(cards))
            @if more > 0 { p class="nothing" { "and " (several(more, "resource")) " more" } }
        }
    }
}

impl<'c> Cards<'c> {
    /// Whether anything is left to tell.
    pub(super) fn is_empty(&self) -> bool {
        !self.changes.iter().any(|change| self.tells(change))
    }

    fn tells(&self, change: &ResourceChange<'_>) -> bool {
        change.deed != Deed::Changed
            || change.readiness().is_some()
            || self.fields(change).next().is_some()
            // There were too many before it: what they are is not known here.
            || change.fields.len() < change.field_count
    }

    fn fields<'f>(&self, change: &'f ResourceChange<'c>) -> impl Iterator<Item = &'f Change<'c>> {
        let all = !self.without_bookkeeping;
        change
            .fields
            .iter()
            .filter(move |field| all || !is_bookkeeping(&field.path))
    }

    fn card(&self, change: &ResourceChange<'c>) -> Markup {
        let (mark, word) = match change.deed {
            Deed::Added => (Mark::Added, "added"),
            Deed::Changed => (Mark::Changed, "changed"),
            Deed::Removed => (Mark::Dropped, "dropped"),
        };
        let either = change.after.or(change.before);
        let kind = either.map_or("", |resource| resource.kind());
        let name = short_name(if change.name.is_empty() {
            self.composite
        } else {
            change.name
        });
        let fields: Vec<_> = self.fields(change).collect();
        let count = fields.len() + (change.field_count - change.fields.len());
        let (rows, shown) = field_rows(fields.iter().copied().take(MAX_FIELDS));
        html! {
            article class="change" {
                h3 class={ "c " (mark.as_str()) } {
                    span class="node" aria-hidden="true" { (sign_of(mark)) }
                    span class="sr" { (word) " " }
                    a class="name" href=(address::story(self.trace_id, change.name)) { (name) }
                    " " span class="kind" { (short_name(kind)) }
                    @if count > 0 {
                        span class="tally" { (several(count, "field")) }
                    }
                }
                @match (change.deed, change.readiness()) {
                    (Deed::Changed, Some((before, after))) => {
                        (row("ready", &html! { del { (readiness(before)) } " → " ins { (readiness(after)) } }))
                    },
                    (Deed::Added, Some((_, after))) => (row("ready", &html! { ins { (readiness(after)) } })),
                    _ => {},
                }
                (rows)
                @if count > shown {
                    p class="nothing" { "and " (several(count - shown, "more field")) }
                }
                @if change.deed != Deed::Changed {
                    @if let Some(resource) = either {
                        div class={ "whole " (mark.as_str()) } {
                            (Tree {
                                value: &resource.body,
                                place: None,
                                lines: WHOLE_LINES,
                                from: 0,
                                is_open: true,
                            })
                        }
                    }
                }
            }
        }
    }
}

const fn readiness(ready: Option<bool>) -> &'static str {
    match ready {
        None => "not said",
        Some(true) => "ready",
        Some(false) => "not ready",
    }
}

fn row(path: &str, values: &Markup) -> Markup {
    html! {
        div class="field-change" {
            code class="path" { (plain(path)) }
            div class="values" { (values) }
        }
    }
}

/// Fields, as many as there is room for; and how many these are.
pub(super) fn field_rows<'f, 'c: 'f>(
    fields: impl Iterator<Item = &'f Change<'c>>,
) -> (Markup, usize) {
    let (mut rows, mut shown) = (String::new(), 0);
    for field in fields {
        if rows.len() >= FIELDS_BYTES {
            break;
        }
        rows.push_str(&field_row(field).into_string());
        shown += 1;
    }
    (PreEscaped(rows), shown)
}

/// A field: where it is, what it was, what it is.
fn field_row(field: &Change<'_>) -> Markup {
    let path = match field.path.to_string() {
        path if path.is_empty() => "(all of it)".to_owned(),
        path => cut(&path, MAX_BYTES).into_owned(),
    };
    row(&path, &values(field.before, field.after))
}

fn values(before: Option<&Json<'_>>, after: Option<&Json<'_>>) -> Markup {
    if let (Some(Json::Text(old)), Some(Json::Text(new))) = (before, after)
        && (old.contains('\n') || new.contains('\n'))
        && old.len() + new.len() <= COMPARED_BYTES
    {
        return lines_between(old, new);
    }
    let [old, new] = [before, after].map(|side| side.map(Shown::of));
    let is_inline = |side: &Option<Shown>| side.as_ref().is_none_or(|side| side.is_inline);
    if is_inline(&old) && is_inline(&new) {
        return html! {
            @match &old {
                Some(old) => del { span class="sr" { "was " } (old.text) },
                None => span class="quiet" { "absent" },
            }
            " → "
            @match &new {
                Some(new) => ins { span class="sr" { "is " } (new.text) },
                None => span class="quiet" { "absent" },
            }
        };
    }
    html! {
        @if let Some(old) = old { pre { del { span class="sr" { "was " } (old.text) } } }
        @if let Some(new) = new { pre { ins { span class="sr" { "is " } (new.text) } } }
    }
}

/// A value, bounded.
struct Shown {
    text: String,
    is_inline: bool,
}

impl Shown {
    fn of(value: &Json<'_>) -> Self {
        if matches!(value, Json::Object(_) | Json::List(_)) && !value.is_empty() {
            let mut sink = Bounded::default();
            write_yaml(value, &mut sink);
            return Self {
                text: sink.finish(),
                is_inline: false,
            };
        }
        let cut_text;
        let value = match value {
            Json::Text(text) if text.len() > MAX_BYTES => {
                cut_text = Json::Text(cut(text, MAX_BYTES));
                &cut_text
            }
            _ => value,
        };
        match scalar(value) {
            Scalar::Line(_, text) => Self {
                is_inline: text.len() <= INLINE_BYTES,
                text: text.into_owned(),
            },
            Scalar::Block(_, text) => Self {
                text: text.to_owned(),
                is_inline: false,
            },
        }
    }
}

/// The first lines of YAML.
#[derive(Default)]
struct Bounded {
    text: String,
    lines: usize,
    /// Of the line that is written.
    bytes: usize,
}

impl YamlSink for Bounded {
    fn write(&mut self, _: Piece, text: &str) {
        if text == "\n" {
            self.lines += 1;
            self.bytes = 0;
        }
        if self.lines < MAX_LINES {
            let left = MAX_BYTES.saturating_sub(self.bytes);
            self.text.push_str(&cut(text, left));
            self.bytes += text.len();
        }
    }
}

impl Bounded {
    fn finish(mut self) -> String {
        if self.lines > MAX_LINES {
            let more = self.lines - MAX_LINES;
            self.text.push_str("\n… ");
            self.text.push_str(&several(more, "line"));
            self.text.push_str(" more");
        }
        self.text.trim_end().to_owned()
    }
}

/// Two texts of several lines: those at the front and at the end that are the same are left out,
/// but for a few.
fn lines_between(old: &str, new: &str) -> Markup {
    let [old, new]: [Vec<&str>; 2] = [old, new].map(|text| text.lines().collect());
    let same = |(one, other): &(&&str, &&str)| one == other;
    let front = old.iter().zip(&new).take_while(same).count();
    let most = old.len().min(new.len()) - front;
    let back = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(most)
        .take_while(same)
        .count();
    let shown = |lines: &[&str]| {
        let mut text = Vec::new();
        for line in lines.iter().take(MAX_LINES) {
            text.push(plain(&cut(line, MAX_BYTES)).into_owned());
        }
        if lines.len() > MAX_LINES {
            text.push(format!(
                "… {} more",
                several(lines.len() - MAX_LINES, "line")
            ));
        }
        text.join("\n")
    };
    let part = |lines: &[&str], from: usize, to: usize| {
        lines.get(from..to).map_or_else(String::new, shown)
    };
    let removed = part(&old, front, old.len() - back);
    let added = part(&new, front, new.len() - back);
    let before = part(&new, front.saturating_sub(CONTEXT), front);
    let behind = part(
        &new,
        new.len() - back,
        (new.len() - back + CONTEXT).min(new.len()),
    );
    html! {
        @if !before.is_empty() { pre class="context" { (before) } }
        @if !removed.is_empty() { pre { del { span class="sr" { "was " } (removed) } } }
        @if !added.is_empty() { pre { ins { span class="sr" { "is " } (added) } } }
        @if !behind.is_empty() { pre class="context" { (behind) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{State, compare_up_to};

    fn html(before: &str, after: &str) -> String {
        let [before, after] = [before, after].map(|text| Json::parse(text).unwrap());
        values(Some(&before), Some(&after)).into_string()
    }

    #[test]
    fn small_values_stand_beside_each_other() {
        let html = html("3", "\"<b>\"");
        assert!(html.contains("was </span>3</del> → <ins>"), "{html}");
        assert!(
            html.contains("&lt;b&gt;") && !html.contains("<b>"),
            "{html}"
        );
    }

    #[test]
    fn of_long_texts_only_what_differs_is_shown() {
        let html = html(r#""a\nb\nc\nd\ne\nf""#, r#""a\nb\nc\nX\ne\nf""#);
        assert!(html.contains("<pre class=\"context\">b\nc</pre>"), "{html}");
        assert!(
            html.contains("d</del>") && html.contains("X</ins>"),
            "{html}"
        );
        assert!(!html.contains('a') || !html.contains(">a\n"), "{html}");
    }

    #[test]
    fn long_texts_of_many_lines_are_bounded() {
        let lines = |end: &str| format!("\"{}{end}\"", r"\n".repeat(1 << 20));
        let html = html(&lines("a"), &lines("b"));
        assert!(html.len() < 20_000, "{} bytes", html.len());
    }

    #[test]
    fn cards_are_bounded_whatever_the_resources_hold() {
        let state = |value: &str| {
            let field = |n| format!(r#""f{n}":"{}""#, value.repeat(600));
            let fields: Vec<_> = (0..100).map(field).collect();
            let fields = fields.join(",");
            let resource = |n| format!(r#""r{n}":{{"resource":{{"kind":"K",{fields}}}}}"#);
            let resources: Vec<_> = (0..60).map(resource).collect();
            format!(r#"{{"resources":{{{}}}}}"#, resources.join(","))
        };
        let [before, after] = ["<", ">"].map(state);
        let [before, after] = [&before, &after].map(|text| State::read(Some(text)).unwrap());
        let found = compare_up_to(&before, &after, MAX_TOLD);
        let cards = Cards {
            changes: &found,
            trace_id: "t",
            composite: "x",
            without_bookkeeping: true,
        };
        let html = cards.render().into_string();
        assert!(html.len() < 2 * CARDS_BYTES, "{} bytes", html.len());
        assert!(html.contains("100 fields") && html.contains("resources more"));
    }

    #[test]
    fn large_values_are_bounded() {
        let long = format!("\"{}\"", "x".repeat(1 << 20));
        let list = format!("[{}]", [long.as_str(); 3].join(","));
        assert!(html("1", &long).len() < 2_000);
        assert!(html(&list, "[]").len() < 4_000);
        let many: Vec<_> = (0..5_000).map(|n| n.to_string()).collect();
        let html = html("[0]", &format!("[{}]", many.join(",")));
        assert!(
            html.contains("… 4,940 lines more") && html.len() < 2_000,
            "{html}"
        );
    }
}
