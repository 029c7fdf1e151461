//! A tree as YAML that folds: every container can be closed, and what is copied is YAML.
//!
//! Invariant: bounded in lines and in bytes, whatever the tree holds. Each container shares what
//! may be shown fairly among its members, so that a large one does not push the others out; what
//! does not fit is a link to a page of its own.

mod sharing;

use maud::{Markup, Render, html};

use self::sharing::{cost, fair_share};
use super::{
    address,
    words::{count, plain, several, size},
};
use crate::{
    json::{Json, Piece, Scalar, scalar},
    pace::breathe,
    text::cut,
};

/// Bytes of a text that are shown.
const TEXT_BYTES: usize = 1024;
/// Bytes of a kind or a name beside a closed container.
const GIST_BYTES: usize = 128;
/// Bytes of what is no JSON.
const BARE_BYTES: usize = 256 * 1024;
/// Containers below this depth are closed at first, unless they are small.
const OPEN_DEPTH: usize = 2;
const SMALL_LINES: usize = 6;
/// A part of fewer lines tells less than a link to it.
const LEAST_LINES: usize = 6;
/// Of HTML for each line that may be shown: some five times what lines usually take. A text can
/// have a line end at every character, and each of them stands far in.
const LINE_BYTES: usize = 512;
/// A way into a payload that is longer has no page: there is a limit to addresses.
const MAX_POINTER_BYTES: usize = 2048;

/// What to show of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree<'j> {
    pub(super) value: &'j Json<'j>,
    /// The object it stands in, and where; without it there are no links.
    pub(super) place: Option<(&'j str, &'j str)>,
    /// How many lines, about.
    pub(super) lines: usize,
    /// The first member or item of the outermost container.
    pub(super) from: usize,
    /// Nothing is closed at first.
    pub(super) is_open: bool,
}

impl Tree<'_> {
    /// How many members or items of the outermost container stand on a page.
    pub(super) const fn most(&self) -> usize {
        self.lines / 2
    }
}

impl Render for Tree<'_> {
    fn render_to(&self, out: &mut String) {
        let (key, pointer) = self.place.unzip();
        let end = out.len() + self.lines * LINE_BYTES;
        let mut brush = Brush {
            out,
            end,
            key,
            is_open: self.is_open,
        };
        brush.out.push_str("<div class=\"yaml\">");
        let way = Way::Begin(pointer.unwrap_or_default());
        if has_children(self.value) {
            let level = Level {
                indent: 0,
                depth: 0,
            };
            let window = (self.from, self.most());
            brush.children(self.value, &way, level, self.lines, window);
        } else {
            brush.leaf(None, self.value, &way, 0);
        }
        brush.out.push_str("</div>");
    }
}

/// What is no tree, as it is.
pub(super) fn bare(what: &str, text: &str) -> Markup {
    html! {
        p class="nothing" { (what) }
        pre class="text" { (plain(&cut(text, BARE_BYTES))) }
    }
}

fn has_children(value: &Json<'_>) -> bool {
    matches!(value, Json::Object(_) | Json::List(_)) && !value.is_empty()
}

/// What stands before a value.
#[derive(Clone, Copy)]
enum Lead<'j> {
    Name(&'j str),
    Dash,
}

struct Child<'j> {
    lead: Lead<'j>,
    value: &'j Json<'j>,
    place: usize,
    cost: usize,
}

/// Where a value stands. Written down only for links: a name may be long, and all that stands
/// below it has it in its way.
enum Way<'w> {
    Begin(&'w str),
    Below(&'w Way<'w>, Lead<'w>, usize),
}

impl Way<'_> {
    /// As a JSON pointer; `None` if it is too long for an address.
    fn pointer(&self) -> Option<String> {
        let pointer = match self {
            Self::Begin(pointer) => (*pointer).to_owned(),
            Self::Below(above, Lead::Dash, place) => {
                address::below(&above.pointer()?, &place.to_string())
            }
            Self::Below(_, Lead::Name(name), _) if name.len() > MAX_POINTER_BYTES => return None,
            Self::Below(above, Lead::Name(name), _) => address::below(&above.pointer()?, name),
        };
        (pointer.len() <= MAX_POINTER_BYTES).then_some(pointer)
    }
}

/// How far in a value stands.
#[derive(Clone, Copy)]
struct Level {
    indent: usize,
    depth: usize,
}

struct Brush<'o> {
    out: &'o mut String,
    /// How long it may get; what stands around what is cut comes on top.
    end: usize,
    key: Option<&'o str>,
    is_open: bool,
}

impl Brush<'_> {
    /// The children of a container: from which on, and at most how many.
    fn children(
        &mut self,
        value: &Json<'_>,
        way: &Way<'_>,
        level: Level,
        lines: usize,
        (from, most): (usize, usize),
    ) {
        let (children, total) = children_of(value, lines, from, most);
        let costs = children.iter().map(|child| child.cost);
        let share = fair_share(costs.collect(), lines);
        let mut shown = from;
        for child in &children {
            if self.is_full() {
                break;
            }
            breathe();
            self.child(child, way, level, share);
            shown += 1;
        }
        let left = total.saturating_sub(shown);
        if left > 0 {
            self.indent(level.indent);
            self.link(&format!("… {} more", count(left)), way);
            self.out.push('\n');
        }
    }

    fn is_full(&self) -> bool {
        self.out.len() >= self.end
    }

    fn child(&mut self, child: &Child<'_>, above: &Way<'_>, level: Level, share: usize) {
        let way = Way::Below(above, child.lead, child.place);
        if !has_children(child.value) {
            self.leaf(Some(child.lead), child.value, &way, level.indent);
            return;
        }
        if child.cost > share && share < LEAST_LINES {
            self.out.push_str("<div class=\"l\">");
            self.lead(child.lead, level.indent);
            self.out.push(' ');
            self.link(&format!("{} …", gist(child.value)), &way);
            self.out.push_str("</div>");
            return;
        }
        let is_open = self.is_open || level.depth < OPEN_DEPTH || child.cost <= SMALL_LINES;
        self.out.push_str(if is_open {
            "<details open>"
        } else {
            "<details>"
        });
        self.out.push_str("<summary>");
        self.lead(child.lead, level.indent);
        self.out.push_str("<span class=\"gist\"> ");
        gist(child.value).as_str().render_to(self.out);
        self.out.push_str("</span></summary>");
        let below = Level {
            indent: match (child.lead, child.value) {
                // Under its name a list is not indented.
                (Lead::Name(_), Json::List(_)) => level.indent,
                _ => level.indent + 2,
            },
            depth: level.depth + 1,
        };
        let lines = child.cost.min(share);
        self.children(child.value, &way, below, lines, (0, lines));
        self.out.push_str("</details>");
    }

    /// A value that is no container, or an empty one.
    fn leaf(&mut self, lead: Option<Lead<'_>>, value: &Json<'_>, way: &Way<'_>, indent: usize) {
        self.out.push_str("<div class=\"l\">");
        if let Some(lead) = lead {
            self.lead(lead, indent);
            if matches!(lead, Lead::Name(_)) {
                self.out.push(' ');
            }
        }
        match value {
            Json::Text(text) if text.len() > TEXT_BYTES => {
                let shown = Json::Text(cut(text, TEXT_BYTES));
                self.scalar(&shown, indent);
                self.out.push(' ');
                self.link(&format!("all {}", size(text.len() as u64)), way);
            }
            _ => self.scalar(value, indent),
        }
        self.out.push_str("</div>");
    }

    fn scalar(&mut self, value: &Json<'_>, indent: usize) {
        match scalar(value) {
            Scalar::Line(piece, text) => {
                let class = if piece == Piece::Word { "w" } else { "t" };
                self.out.push_str("<span class=\"");
                self.out.push_str(class);
                self.out.push_str("\">");
                text.as_ref().render_to(self.out);
                self.out.push_str("</span>");
            }
            Scalar::Block(header, text) => {
                self.out.push_str(header);
                self.out.push_str("<span class=\"t\">");
                for line in text.lines() {
                    if self.is_full() {
                        self.out.push_str("\n…");
                        break;
                    }
                    self.out.push('\n');
                    if !line.is_empty() {
                        self.indent(indent + 2);
                        line.render_to(self.out);
                    }
                }
                self.out.push_str("</span>");
            }
        }
    }

    fn lead(&mut self, lead: Lead<'_>, indent: usize) {
        self.indent(indent);
        match lead {
            Lead::Dash => self.out.push_str("<span class=\"d\">-</span> "),
            Lead::Name(name) => {
                self.out.push_str("<span class=\"k\">");
                let name = Json::Text(cut(name, TEXT_BYTES));
                if let Scalar::Line(_, name) = scalar(&name) {
                    name.as_ref().render_to(self.out);
                } else {
                    // A name of several lines.
                    "\"…\"".render_to(self.out);
                }
                self.out.push_str("</span>:");
            }
        }
    }

    fn link(&mut self, text: &str, way: &Way<'_>) {
        let Some((key, pointer)) = self.key.zip(way.pointer()) else {
            text.render_to(self.out);
            return;
        };
        self.out.push_str("<a class=\"cut\" href=\"");
        address::open(key, &pointer).as_str().render_to(self.out);
        self.out.push_str("\">");
        text.render_to(self.out);
        self.out.push_str("</a>");
    }

    fn indent(&mut self, columns: usize) {
        self.out.extend(std::iter::repeat_n(' ', columns));
    }
}

/// Some children from one on, and how many there are in all.
fn children_of<'j>(
    value: &'j Json<'j>,
    lines: usize,
    from: usize,
    most: usize,
) -> (Vec<Child<'j>>, usize) {
    let child = |lead, place, value: &'j Json<'j>| Child {
        lead,
        value,
        place,
        cost: cost(value, lines),
    };
    match value {
        Json::Object(members) => {
            let shown = members.iter().enumerate().skip(from).take(most);
            let shown = shown.map(|(place, (name, value))| child(Lead::Name(name), place, value));
            (shown.collect(), members.len())
        }
        Json::List(items) => {
            let shown = items.iter().enumerate().skip(from).take(most);
            let shown = shown.map(|(place, item)| child(Lead::Dash, place, item));
            (shown.collect(), items.len())
        }
        _ => (Vec::new(), 0),
    }
}

/// What a closed container is.
fn gist(value: &Json<'_>) -> String {
    let resource = value.member("resource").unwrap_or(value);
    let kind = resource.member("kind").and_then(Json::text);
    let name = resource.at_pointer("/metadata/name").and_then(Json::text);
    match (value, kind, name) {
        (Json::List(items), ..) => several(items.len(), "item"),
        (_, Some(kind), Some(name)) => format!("{} {}", short(kind), short(name)),
        (_, Some(kind), None) => short(kind),
        (Json::Object(members), ..) => several(members.len(), "member"),
        _ => String::new(),
    }
}

fn short(text: &str) -> String {
    plain(&cut(text, GIST_BYTES)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(json: &str, lines: usize) -> String {
        let value = Json::parse(json).unwrap();
        let tree = Tree {
            value: &value,
            place: Some(("v1/k", "/steps/0/request")),
            lines,
            from: 0,
            is_open: false,
        };
        tree.render().into_string()
    }

    /// Without tags, as a browser copies it.
    fn text(html: &str) -> String {
        let mut text = String::new();
        let mut is_tag = false;
        let html = html.replace("</div>", "\n").replace("</summary>", "\n");
        // Gists are not selectable.
        let mut rest = html.as_str();
        let mut kept = String::new();
        while let Some((before, behind)) = rest.split_once("<span class=\"gist\">") {
            kept.push_str(before);
            rest = behind.split_once("</span>").unwrap().1;
        }
        kept.push_str(rest);
        for character in kept.chars() {
            match character {
                '<' => is_tag = true,
                '>' => is_tag = false,
                _ if !is_tag => text.push(character),
                _ => {}
            }
        }
        text.replace("&quot;", "\"")
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&")
    }

    #[test]
    fn what_is_copied_is_yaml() {
        let json = r#"{"a":{"b":[1,{"c":"x: y"},["z"]],"text":"one\ntwo\n"},"e":{},"n":null}"#;
        let yaml = text(&rendered(json, 500));
        let read: serde_json::Value = serde_norway::from_str(&yaml).expect(&yaml);
        assert_eq!(
            read,
            serde_json::from_str::<serde_json::Value>(json).unwrap(),
            "{yaml}"
        );
    }

    #[test]
    fn nothing_is_obeyed() {
        let html = rendered(r#"{"<script>":"</span><img src=x>\u001b[0m"}"#, 100);
        assert!(
            !html.contains("<script") && !html.contains("<img"),
            "{html}"
        );
        assert!(html.contains("\\u001b"), "{html}");
    }

    #[test]
    fn a_large_part_does_not_push_the_others_out() {
        let many: Vec<_> = (0..10_000)
            .map(|n| format!(r#""r{n:05}":{{"a":{{"b":1}}}}"#))
            .collect();
        let json = format!(
            r#"{{"many":{{{}}},"small":{{"x":{{"y":"here"}}}}}}"#,
            many.join(",")
        );
        let html = rendered(&json, 400);
        assert!(html.contains("here"), "{html}");
        assert!(html.contains("… 9,"), "{html}");
        assert!(
            html.contains("/open?key=v1/k&amp;pointer=/steps/0/request/many"),
            "{html}"
        );
        assert!(html.len() < 200_000, "{} bytes", html.len());
    }

    #[test]
    fn whatever_it_holds_it_is_bounded_in_bytes() {
        // Below a long name, and far in, texts that have nothing but line ends.
        let ends = r"\n".repeat(1_000);
        let texts: Vec<_> = (0..200).map(|n| format!(r#""t{n}":"a{ends}""#)).collect();
        // The parser takes 128 levels in all.
        let deep = format!("{}{}{}", r#"{"d":"#.repeat(64), "1", "}".repeat(64));
        let long = "n".repeat(1 << 20);
        let nested = format!(
            r#"{}{{{},"deep":{deep}}}{}"#,
            r#"{"x":"#.repeat(60),
            texts.join(","),
            "}".repeat(60)
        );
        let json = format!(r#"{{"{long}":{nested}}}"#);
        let html = rendered(&json, 1_200);
        assert!(html.len() < 2 << 20, "{} bytes", html.len());
    }

    #[test]
    fn a_long_text_is_cut() {
        let json = format!(r#"{{"long":"{}"}}"#, "x".repeat(3 << 20));
        let html = rendered(&json, 100);
        assert!(html.len() < 4_000, "{} bytes", html.len());
        assert!(html.contains("all 3.0 MiB"), "{html}");
    }
}
