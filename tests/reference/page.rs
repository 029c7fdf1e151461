//! The page, and the sections of it that are made: what stands between `<!-- made: NAME -->` and
//! `<!-- end -->`. `UPDATE_REFERENCE=1 cargo test` writes them anew.

use std::{
    collections::BTreeSet,
    env, fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use regex::Regex;

/// Sections are written by several tests at once.
static WRITING: Mutex<()> = Mutex::new(());

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/reference.md")
}

pub(crate) fn text() -> String {
    fs::read_to_string(path()).unwrap()
}

/// Everything on the page that a pattern finds.
pub(crate) fn all(pattern: &str) -> BTreeSet<String> {
    found(pattern, &text())
}

/// Everything in a text that a pattern finds.
pub(crate) fn found(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    let matches = pattern.find_iter(text);
    matches.map(|found| found.as_str().to_owned()).collect()
}

/// Compares a section with what was made for it.
pub(crate) fn check_section(name: &str, made: &str) {
    // One that failed is no reason for the others to.
    let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let page = text();
    let begin = format!("<!-- made: {name} -->\n");
    let (before, rest) = page.split_once(&begin).unwrap();
    let (section, after) = rest.split_once("<!-- end -->").unwrap();
    if env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(path(), format!("{before}{begin}{made}<!-- end -->{after}")).unwrap();
        return;
    }
    assert!(
        section == made,
        "docs/reference.md is not in step: UPDATE_REFERENCE=1 cargo test writes its {name} anew\n\
         --- it says\n{section}\n--- the program says\n{made}"
    );
}

/// Text as it stands in a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}
