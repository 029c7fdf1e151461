//! Attributes and events of spans: the tables at the top of `src/spans/mod.rs`.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;

use crate::page::{check_section, found};

fn source(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/spans");
    fs::read_to_string(folder.join(file)).unwrap()
}

/// The rows of the tables in the module's documentation, heads and lines between them included.
fn tables() -> [String; 2] {
    let source = source("mod.rs");
    let docs: Vec<_> = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .collect();
    let tables: Vec<String> = docs
        .split(|line| !line.starts_with('|'))
        .filter(|rows| !rows.is_empty())
        .map(|rows| rows.join("\n") + "\n")
        .collect();
    tables.try_into().unwrap()
}

#[test]
fn the_attributes_and_events_are_those_of_the_sources() {
    let [attributes, events] = tables();
    check_section("attributes", &attributes);
    check_section("events", &events);
}

#[test]
fn the_sources_say_what_they_do() {
    let [attributes, events] = tables();
    let first_cells = attributes.lines().filter_map(|row| row.split('|').nth(1));
    let mut told: BTreeSet<_> = first_cells.flat_map(names_in).collect();
    told.extend(names_in(&events));

    let dotted = r#""[a-z_0-9]+(\.[a-z_0-9]+)+""#;
    let used = ["root.rs", "step.rs", "events.rs"].map(|file| found(dotted, &source(file)));
    let used: BTreeSet<_> = used
        .iter()
        .flatten()
        .map(|literal| literal.trim_matches('"').to_owned())
        .collect();
    assert_eq!(told, used);
}

/// `a.b.c`, `.d`, `e.{f,g}` → `a.b.c`, `a.b.d`, `e.f`, `e.g`
fn names_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let quoted = Regex::new("`([^` ]+)`").unwrap();
    for name in quoted.captures_iter(text) {
        let name = match name[1].strip_prefix('.') {
            Some(last) => {
                let before = names.last().unwrap().rsplit_once('.').unwrap().0;
                format!("{before}.{last}")
            }
            None => name[1].to_owned(),
        };
        match name.split_once('{') {
            Some((before, rest)) => {
                let (choices, after) = rest.split_once('}').unwrap();
                let each = choices
                    .split(',')
                    .map(|choice| format!("{before}{choice}{after}"));
                names.extend(each);
            }
            None => names.push(name),
        }
    }
    names.retain(|name| name.contains('.'));
    names
}
