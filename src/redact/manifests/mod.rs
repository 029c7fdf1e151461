//! Finds Secrets in YAML, and in templates of YAML, which are not quite YAML.
//!
//! No parser reads a template, so this goes by lines and indentation, as people write manifests:
//!
//! - the values of `data` of anything whose `kind` is a Secret or like one, and of `stringData`;
//! - in a manifest, what would go from JSON: literal values of keys that name a secret, or beside a
//!   name that does, `credentials` and `connectionDetails`.
//!
//! Invariant: if a Secret stands in a way that this doesn't understand (flow style, aliases, tabs,
//! quotes that don't close, letters that are escaped, …), or something that would go is in JSON that
//! isn't read, the whole text is withheld. A text that is no manifest, and has no JSON in it, stays.

mod blocks;
mod escapes;
mod flow;
mod inside;
mod lines;
mod members;
mod outline;
mod place;

pub(super) use self::inside::has_named_key;
use self::{
    escapes::hides_word,
    inside::{ends_of_pairs, has_data, has_key_that_goes, has_pair, has_secret_type},
    lines::Lines,
    outline::Outline,
    place::What,
};
use super::{
    Rules,
    breaks::with_plain_breaks,
    edits::{Edit, Form, TooMany},
    embedded::Inside,
};

/// What can't be understood.
#[derive(Debug)]
enum Unsure {
    /// Whether there is a Secret, or where its data ends.
    Secret,
    /// Where a value that goes by its key ends, or it is one of too many.
    Value,
}

impl From<TooMany> for Unsure {
    fn from(_: TooMany) -> Self {
        Self::Value
    }
}

/// A value that may have to go.
#[derive(Clone, Copy, Debug)]
struct Value {
    /// Behind the colon of its key.
    start: usize,
    end: usize,
    /// That of its key.
    column: usize,
    /// How many mappings it is in.
    depth: usize,
    what: What,
    form: Form,
}

/// The values to redact in a text that is not JSON.
pub(super) fn find_secret_values(text: &str, rules: &Rules) -> Inside {
    let Some(plain) = with_plain_breaks(text) else {
        return find_in_lines(text, rules);
    };
    // Such breaks are rare enough not to be understood: it depends on who reads them.
    let has_nothing = |text| matches!(find_in_lines(text, rules), Inside::Nothing);
    let has_secret = may_hold_secret(text) && has_data(text);
    if !has_secret && has_nothing(text) && has_nothing(&plain) {
        Inside::Nothing
    } else {
        Inside::Withhold
    }
}

fn may_hold_secret(text: &str) -> bool {
    (text.contains("kind") && text.contains("Secret"))
        || text.contains("stringData")
        || has_secret_type(text)
}

fn find_in_lines(text: &str, rules: &Rules) -> Inside {
    if hides_word(text) {
        return Inside::Withhold;
    }
    let may_hold_secret = may_hold_secret(text);
    let may_be_manifest = text.contains("kind") && text.contains("apiVersion");
    if !may_hold_secret && !may_be_manifest {
        return if has_pair(text, rules) {
            Inside::Withhold
        } else {
            Inside::Nothing
        };
    }
    // What isn't understood may be the data of a Secret, or hide what goes from a manifest by its key.
    let may_hide_value = || {
        (may_hold_secret && has_data(text)) || (is_manifest(text) && has_key_that_goes(text, rules))
    };
    let (edits, is_manifest) = match find(text, rules) {
        Ok(found) => found,
        Err(Unsure::Secret) if !may_hide_value() => (Vec::new(), false),
        Err(_) => return Inside::Withhold,
    };
    if !is_manifest && has_pair_outside(text, rules, &edits) {
        return Inside::Withhold;
    }
    if edits.is_empty() {
        Inside::Nothing
    } else {
        Inside::Edits(edits)
    }
}

/// Whether a text has the keys of a manifest.
fn is_manifest(text: &str) -> bool {
    let has_key = |name: &str| {
        let lines = Lines::new(text, 0, text.len());
        let mut keys = lines.filter_map(|line| line.without_dashes().key());
        keys.any(|key| key.name == name)
    };
    has_key("kind") && has_key("apiVersion")
}

/// What goes, and whether the text is a manifest.
fn find(text: &str, rules: &Rules) -> Result<(Vec<Edit>, bool), Unsure> {
    let mut outline = Outline::new(text, rules);
    for line in Lines::new(text, 0, text.len()) {
        outline.take(line)?;
    }
    outline.end_document();
    Ok((outline.edits()?, outline.is_manifest()))
}

/// Whether there is more to redact in JSON than these places.
fn has_pair_outside(text: &str, rules: &Rules, edits: &[Edit]) -> bool {
    let mut edits = edits.iter().peekable();
    ends_of_pairs(text, rules).any(|colon| {
        while edits.next_if(|edit| edit.end <= colon + 1).is_some() {}
        // The edit of a value begins right behind its colon, or behind a space.
        let rest = text.get(colon + 1..).unwrap_or_default();
        let value = colon + 1 + (rest.len() - rest.trim_ascii_start().len());
        edits.peek().is_none_or(|edit| value < edit.start)
    })
}

#[cfg(test)]
mod tests {
    use super::{
        flow::{end_of_collection, end_of_quoted},
        inside::ends_of_keys,
        *,
    };
    use crate::{pace::breaths_during, redact::Redactor};

    /// Reads a long text of this part over and over, and tells whether others got the CPU.
    fn gives_way<T>(around: [&str; 2], part: &str, read: impl FnOnce(&str) -> T) -> bool {
        const LONG: usize = 1024 * 1024;
        let [before, behind] = around;
        let text = format!("{before}{}{behind}", part.repeat(LONG / part.len()));
        breaths_during(|| read(&text)) >= LONG / (64 * 1024)
    }

    #[test]
    fn others_get_the_cpu_in_each_loop_over_a_long_text() {
        let rules = Redactor::new(&[], &["^pin$"]).unwrap().rules;
        let lines = |text: &str| Lines::new(text, 0, text.len()).count();
        assert!(gives_way([""; 2], "a: b\n", lines));
        let in_brackets = |text: &str| end_of_collection(text, 0).unwrap();
        assert!(gives_way(["[", "]"], "{b: c},\n", in_brackets));
        let in_quotes = |text: &str| end_of_quoted(text, 0).unwrap();
        assert!(gives_way(["\"", "\""], "a b\n", in_quotes));
        assert!(gives_way([""; 2], "\\\"xyz", hides_word));
        let keys = |text: &str| ends_of_keys(text, "data").count();
        assert!(gives_way([""; 2], "data, ", keys));
        let pairs = |text: &str| ends_of_pairs(text, &rules).count();
        assert!(gives_way([""; 2], "\"a\": \"b\" ", pairs));
        let named = |text: &str| has_named_key(text, &rules);
        assert!(gives_way([""; 2], "a: b, ", named));
    }
}
