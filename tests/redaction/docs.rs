//! docs/redaction.md lists the places of the table, and no others. `UPDATE_REFERENCE=1 cargo test`
//! writes its lists anew.

use std::{env, fmt::Write as _, fs, path::PathBuf};

use crate::places::{Expected, places};

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/redaction.md")
}

/// The lists of all sections.
fn made() -> String {
    let places = places();
    let mut made = String::new();
    for section in places.chunk_by(|one, other| one.section == other.section) {
        writeln!(made, "\n### {}", section[0].section).unwrap();
        for (expected, heading) in [
            (Expected::Covered, "Redacted:"),
            (Expected::Kept, "Kept, since answers and replays need it:"),
            (Expected::NotCovered, "**Not covered:**"),
        ] {
            let mut names = section
                .iter()
                .filter(|place| place.expected == expected)
                .peekable();
            if names.peek().is_some() {
                writeln!(made, "\n{heading}\n").unwrap();
            }
            for place in names {
                writeln!(made, "- {}", place.name).unwrap();
            }
        }
    }
    made.push('\n');
    made
}

#[test]
fn the_docs_list_what_the_table_proves() {
    let text = fs::read_to_string(page()).unwrap();
    let begin = "<!-- made: places -->\n";
    let (before, rest) = text.split_once(begin).unwrap();
    let (listed, after) = rest.split_once("<!-- end -->").unwrap();
    let made = made();
    if env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(page(), format!("{before}{begin}{made}<!-- end -->{after}")).unwrap();
        return;
    }
    assert!(
        listed == made,
        "docs/redaction.md is not in step: UPDATE_REFERENCE=1 cargo test --test redaction writes it\n\
         --- it says\n{listed}\n--- the table says\n{made}"
    );
}

#[test]
fn no_place_is_listed_twice() {
    let places = places();
    for (number, place) in places.iter().enumerate() {
        let is_same = |other: &&crate::places::Place| {
            (other.section, other.name) == (place.section, place.name)
        };
        assert!(
            places[..number].iter().find(is_same).is_none(),
            "{}",
            place.name
        );
    }
}
