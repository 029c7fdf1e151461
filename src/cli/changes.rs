//! How resources differ, resource by resource and field by field. Pure.
//!
//! Invariant: what changes with every write (managedFields and the like) is left out unless it is
//! asked for; nothing else is.

use serde::Serialize;
use spanplane::{
    answers::{Deed, Resource, ResourceChange, is_bookkeeping},
    json::{Change, Json, Path, Segment, write_yaml},
};

use super::{
    row::{Row, Style},
    values::{cut, cut_both, show_value},
};

/// Lines of a text that are shown where it is not shown whole.
const LINES: usize = 12;
/// Room for a value, however narrow the terminal is.
const LEAST_COLUMNS: usize = 16;

/// How changes are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeLook {
    /// Values are cut to this; `None` leaves them whole.
    pub(crate) columns: Option<usize>,
    /// Also what changes with every write.
    pub(crate) all: bool,
    /// Also what stands in a resource that was added or removed.
    pub(crate) bodies: bool,
}

/// A change for programs.
#[derive(Debug, Serialize)]
pub(crate) struct ToldChange<'c> {
    /// `null` for the composite.
    resource: Option<&'c str>,
    kind: Option<&'c str>,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<ToldReadiness>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<ToldField<'c>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<&'c Json<'c>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<&'c Json<'c>>,
}

#[derive(Debug, Serialize)]
struct ToldReadiness {
    before: Option<bool>,
    after: Option<bool>,
}

/// A field for programs; what was not there, or is not any more, is left out.
#[derive(Debug, Serialize)]
pub(crate) struct ToldField<'c> {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'c Json<'c>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'c Json<'c>>,
}

impl ChangeLook {
    /// For rows that others put this far to the right.
    pub(crate) fn indented(self, by: usize) -> Self {
        Self {
            columns: self.columns.map(|columns| columns.saturating_sub(by)),
            ..self
        }
    }

    /// Without what nobody wants to see.
    pub(crate) fn visible<'c>(
        &self,
        changes: impl IntoIterator<Item = ResourceChange<'c>>,
    ) -> Vec<ResourceChange<'c>> {
        let hide = |mut change: ResourceChange<'c>| {
            if !self.all {
                change.fields.retain(|field| !is_bookkeeping(&field.path));
            }
            let says = match change.deed {
                Deed::Changed => !change.fields.is_empty() || change.readiness().is_some(),
                // An empty composite is what stands for none.
                Deed::Added | Deed::Removed => {
                    self.all || !change.name.is_empty() || has_body(&change)
                }
            };
            says.then_some(change)
        };
        changes.into_iter().filter_map(hide).collect()
    }

    /// Changes as rows.
    pub(crate) fn rows(&self, changes: &[ResourceChange<'_>]) -> Vec<Row> {
        changes
            .iter()
            .flat_map(|change| self.change_rows(change))
            .collect()
    }

    fn change_rows(&self, change: &ResourceChange<'_>) -> Vec<Row> {
        let (sign, style, _) = deed_of(change.deed);
        let mut title = Row::new()
            .with(style, format!("{sign} "))
            .with(Style::Strong, name_of(change));
        if let Some(kind) = kind_of(change) {
            title = title.plain(format!(" ({kind})"));
        }
        let mut rows = Vec::new();
        match (change.deed, change.readiness()) {
            (Deed::Added, Some((_, after))) => {
                title = title.plain(format!(", {}", readiness_of(after)));
            }
            (Deed::Changed, Some((before, after))) => {
                let news = format!("{} → {}", readiness_of(before), readiness_of(after));
                rows.push(Row::new().with(Style::Faint, "    readiness: ").plain(news));
            }
            (Deed::Removed, _) | (_, None) => {}
        }
        rows.insert(0, title);
        // What functions say of the composite is a few fields of its status.
        if self.bodies || change.name.is_empty() {
            let body = match change.deed {
                Deed::Added => change.after,
                Deed::Removed => change.before,
                Deed::Changed => None,
            };
            rows.extend(
                body.into_iter()
                    .flat_map(|body| self.body_rows(body, style)),
            );
        }
        rows.extend(
            change
                .fields
                .iter()
                .flat_map(|field| self.field_rows(field)),
        );
        rows
    }

    /// A field, under its resource.
    pub(crate) fn field_rows(&self, field: &Change<'_>) -> Vec<Row> {
        let path = match field.path.to_string() {
            whole if whole.is_empty() => "(all of it)".to_owned(),
            path => path,
        };
        let named = |sign: &str, style| {
            Row::new()
                .with(style, format!("  {sign} "))
                .with(Style::Name, path.clone())
                .plain(": ")
        };
        match (field.before, field.after) {
            (Some(before), Some(after)) => {
                if let Some(rows) = self.text_rows(before, after) {
                    let mut all = vec![named(" ", Style::Plain)];
                    all.extend(rows);
                    return all;
                }
                let row = named(" ", Style::Plain);
                let room = self.room(row.columns() + 3, 2);
                let [before, after] = cut_both(show_value(before), show_value(after), room);
                vec![
                    row.with(Style::Bad, before)
                        .plain(" → ")
                        .with(Style::Good, after),
                ]
            }
            (Some(gone), None) => {
                let row = named("-", Style::Bad);
                let room = self.room(row.columns(), 1);
                vec![row.with(Style::Bad, cut(show_value(gone), room))]
            }
            (None, Some(new)) => {
                let row = named("+", Style::Good);
                let room = self.room(row.columns(), 1);
                vec![row.with(Style::Good, cut(show_value(new), room))]
            }
            (None, None) => Vec::new(),
        }
    }

    fn body_rows(&self, resource: &Resource<'_>, style: Style) -> Vec<Row> {
        let mut yaml = String::new();
        if self.all {
            write_yaml(&resource.body, &mut yaml);
        } else {
            write_yaml(&without_bookkeeping(&resource.body), &mut yaml);
        }
        let lines = yaml.lines();
        lines
            .map(|line| Row::new().with(style, format!("    {line}")))
            .collect()
    }

    /// Columns for each of some values behind what is there already.
    fn room(&self, taken: usize, values: usize) -> Option<usize> {
        let left = self.columns?.saturating_sub(taken) / values;
        Some(left.max(LEAST_COLUMNS))
    }

    /// Two texts of several lines, by the lines that differ.
    fn text_rows(&self, before: &Json<'_>, after: &Json<'_>) -> Option<Vec<Row>> {
        let (before, after) = (before.text()?, after.text()?);
        if !before.contains('\n') && !after.contains('\n') {
            return None;
        }
        let [old, new] = [before, after].map(|text| text.split('\n').collect::<Vec<_>>());
        let same = |(one, other): &(&&str, &&str)| one == other;
        let ahead = old.iter().zip(&new).take_while(same).count();
        let most = old.len().min(new.len()) - ahead;
        let behind = old.iter().rev().zip(new.iter().rev()).take(most);
        let behind = behind.take_while(same).count();
        let differing = |lines: &[&str]| -> Vec<String> {
            let lines = lines.get(ahead..lines.len() - behind).unwrap_or_default();
            lines.iter().map(|line| (*line).to_owned()).collect()
        };
        let mut rows = Vec::new();
        if ahead > 0 {
            let text = format!("      behind line {ahead}");
            rows.push(Row::new().with(Style::Faint, text));
        }
        for (sign, style, lines) in [
            ("-", Style::Bad, differing(&old)),
            ("+", Style::Good, differing(&new)),
        ] {
            let shown = self.columns.map_or(lines.len(), |_| LINES);
            let more = lines.len().saturating_sub(shown);
            rows.extend(lines.into_iter().take(shown).map(|line| {
                let row = Row::new().with(style, format!("      {sign} {line}"));
                row.cut(self.columns)
            }));
            if more > 0 {
                let text = format!("      {sign} … {more} lines more");
                rows.push(Row::new().with(Style::Faint, text));
            }
        }
        Some(rows)
    }
}

impl<'c> ToldChange<'c> {
    pub(crate) fn of(change: &'c ResourceChange<'c>) -> Self {
        let readiness = change.readiness();
        let body = |side: Option<&'c Resource<'c>>| side.map(|side| &side.body);
        Self {
            resource: Some(change.name).filter(|name| !name.is_empty()),
            kind: kind_of(change),
            change: deed_of(change.deed).2,
            ready: readiness.map(|(before, after)| ToldReadiness { before, after }),
            fields: change.fields.iter().map(ToldField::of).collect(),
            added: body(change.after).filter(|_| change.deed == Deed::Added),
            removed: body(change.before).filter(|_| change.deed == Deed::Removed),
        }
    }
}

impl<'c> ToldField<'c> {
    pub(crate) fn of(field: &'c Change<'c>) -> Self {
        Self {
            path: field.path.to_string(),
            before: field.before,
            after: field.after,
        }
    }
}

fn without_bookkeeping<'j>(body: &Json<'j>) -> Json<'j> {
    let mut body = body.clone();
    let Json::Object(members) = &mut body else {
        return body;
    };
    for (name, metadata) in members.iter_mut() {
        if let Json::Object(fields) = metadata {
            fields.retain(|(field, _)| {
                let segments = [name.clone(), field.clone()].map(Segment::Member);
                !is_bookkeeping(&Path(segments.to_vec()))
            });
        }
    }
    body
}

const fn deed_of(deed: Deed) -> (char, Style, &'static str) {
    match deed {
        Deed::Added => ('+', Style::Good, "added"),
        Deed::Changed => ('~', Style::Warning, "changed"),
        Deed::Removed => ('-', Style::Bad, "removed"),
    }
}

fn name_of<'c>(change: &ResourceChange<'c>) -> &'c str {
    match change.name {
        "" => "composite",
        name => name,
    }
}

fn kind_of<'c>(change: &ResourceChange<'c>) -> Option<&'c str> {
    let sides = [change.after, change.before].into_iter().flatten();
    sides.map(Resource::kind).find(|kind| !kind.is_empty())
}

fn has_body(change: &ResourceChange<'_>) -> bool {
    let mut sides = [change.after, change.before].into_iter().flatten();
    sides.any(|side| !side.body.is_empty())
}

/// What functions say of it.
const fn readiness_of(ready: Option<bool>) -> &'static str {
    match ready {
        Some(true) => "ready",
        Some(false) => "not ready",
        None => "nothing said",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanplane::json::diff;

    const LOOK: ChangeLook = ChangeLook {
        columns: None,
        all: false,
        bodies: false,
    };

    fn rows(before: &str, after: &str, look: ChangeLook) -> Vec<String> {
        let [before, after] = [before, after].map(|text| Json::parse(text).unwrap());
        let changes = diff(&before, &after);
        let rows = changes.iter().flat_map(|change| look.field_rows(change));
        rows.map(|row| row.to_string()).collect()
    }

    #[test]
    fn fields_are_read_from_left_to_right() {
        assert_eq!(
            rows(
                r#"{"a":1,"b":"x","c":[1]}"#,
                r#"{"a":2,"b":"yes","d":{}}"#,
                LOOK
            ),
            [
                "    a: 1 → 2",
                "    b: x → \"yes\"",
                "  - c: [1]",
                "  + d: {}"
            ]
        );
    }

    #[test]
    fn texts_of_several_lines_are_told_by_the_lines_that_differ() {
        assert_eq!(
            rows(r#"{"s":"a\nb\nc\n"}"#, r#"{"s":"a\nB\nB\nc\n"}"#, LOOK),
            [
                "    s: ",
                "      behind line 1",
                "      - b",
                "      + B",
                "      + B"
            ]
        );
        assert_eq!(
            rows(r#"{"s":"a\na\n"}"#, r#"{"s":"a\n"}"#, LOOK),
            ["    s: ", "      behind line 1", "      - a"]
        );
    }

    #[test]
    fn long_values_are_cut_on_a_terminal() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(500));
        let look = ChangeLook {
            columns: Some(60),
            ..LOOK
        };
        let cut = rows(&long, r#"{"a":"short"}"#, look);
        assert!(cut[0].ends_with("x… → short"), "{cut:?}");
        assert!(cut[0].chars().count() <= 60);
        let longer = long.replace("xx\"", "xx and more\"");
        let cut = rows(&long, &longer, look);
        assert_eq!(cut, ["    a: …xxxxxx → …xxxxxx and more"]);
    }
}
