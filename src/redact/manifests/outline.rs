//! What is known of a text, line by line: which mappings there are, and which values may go.
//!
//! Invariant: a line inside of brackets or quotes that are open says nothing about the mappings
//! around it; and if it looks as if it did, the text may hold a Secret that isn't seen.

use super::{
    Unsure, Value,
    blocks::redact_block,
    flow::end_of_quoted,
    inside::{ends_of_keys, has_pair, has_secret},
    lines::{
        Key, Line, Lines, behind_properties, closes, is_action_opening, is_empty_or_redacted,
        unquoted, value_of,
    },
    place::{Place, Says, What, Written},
};
use crate::{
    pace::breathe_after,
    redact::{
        Rules,
        edits::{Edit, Form, push_bounded, settle},
    },
};

/// A mapping that the lines are in.
#[derive(Debug)]
struct Mapping<'t> {
    column: usize,
    /// That of its members.
    place: Place<'t>,
    /// That of what is below the key that went by last.
    below: Place<'t>,
    says: Says,
    /// Where its values begin among all of them.
    values: usize,
}

/// A value that is not on the line of its key.
#[derive(Clone, Copy, Debug)]
struct Awaited<'t> {
    column: usize,
    /// Behind the colon of the key.
    start: usize,
    key: &'t str,
    place: Place<'t>,
    depth: usize,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "any of them may be true at the same time"
)]
pub(super) struct Outline<'t, 'r> {
    pub(super) text: &'t str,
    pub(super) rules: &'r Rules,
    mappings: Vec<Mapping<'t>>,
    pub(super) values: Vec<Value>,
    /// Values that the next lines may belong to, outermost first.
    open: Vec<usize>,
    /// Where the last line with content ended.
    end: usize,
    /// Lines before this place are a part of something that has been read.
    read: usize,
    /// Brackets or quotes are open up to the end of the document.
    is_open: bool,
    has_version: bool,
    has_kind: bool,
    pub(super) has_merge: bool,
    /// A key is written in a way that isn't read, so that it may be any.
    pub(super) has_odd_key: bool,
    pub(super) has_secret: bool,
    /// A value that would go can't be told from the rest.
    pub(super) is_unsure: bool,
    /// The key that went by last is a `kind`, whose value may go on.
    may_go_on_with_kind: bool,
    awaited: Option<Awaited<'t>>,
}

impl<'t, 'r> Outline<'t, 'r> {
    pub(super) fn new(text: &'t str, rules: &'r Rules) -> Self {
        Self {
            text,
            rules,
            mappings: Vec::new(),
            values: Vec::new(),
            open: Vec::new(),
            end: 0,
            read: 0,
            is_open: false,
            has_version: false,
            has_kind: false,
            has_merge: false,
            has_odd_key: false,
            has_secret: false,
            is_unsure: false,
            may_go_on_with_kind: false,
            awaited: None,
        }
    }

    /// Whether this is a manifest of something.
    pub(super) fn is_manifest(&self) -> bool {
        self.has_version && self.has_kind
    }

    pub(super) fn take(&mut self, mut line: Line<'t>) -> Result<(), Unsure> {
        if line.start_of_content() < self.read {
            self.end = line.end;
            return Ok(());
        }
        if line.is_blank() {
            return Ok(());
        }
        if line.is_separator() {
            self.end_document();
            let Some(rest) = line.behind_marker() else {
                return Ok(());
            };
            line = rest;
        }
        if line.is_comment() || line.is_action() {
            // It ends nothing, but may belong to the values that it is indented below: a block of text may look like either.
            if self.is_below_value(line.column) {
                self.end = line.end;
            }
            return Ok(());
        }
        if self.is_open && has_key_that_counts(line.content) {
            return Err(Unsure::Secret);
        }
        let is_item = line.is_item();
        // YAML has no tabs here, and no telling what they mean.
        if line.content.starts_with('\t') && self.is_in_data(line.column) {
            return Err(Unsure::Secret);
        }
        self.end_values(line.column, is_item);
        if is_item {
            self.end_mappings(line.column);
        }
        let is_below = |awaited: &Awaited<'_>| !is_item && awaited.column < line.column;
        let awaited = self.awaited.take().filter(is_below);
        let line = line.without_dashes();
        self.has_odd_key |= line.has_odd_key();
        self.end_mappings(line.column);
        let goes_on_with_secret = self.may_go_on_with_kind && line.content.contains("Secret");
        match line.key() {
            Some(key) => self.take_key(line, key, is_item)?,
            None if goes_on_with_secret || has_secret(line.content) => {
                return Err(Unsure::Secret);
            }
            None => self.take_other(line, awaited, is_item)?,
        }
        self.end = line.end;
        Ok(())
    }

    fn take_key(&mut self, line: Line<'t>, key: Key<'t>, is_item: bool) -> Result<(), Unsure> {
        let value = value_of(key.rest);
        if has_secret(key.rest) {
            return Err(Unsure::Secret);
        }
        self.may_go_on_with_kind = key.name == "kind";
        match key.name {
            "kind" => {
                self.has_kind = true;
                let kind = unquoted(value);
                let is_word = kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let is_elsewhere = value.starts_with(['*', '|', '>']);
                if !is_word && (is_elsewhere || value.contains("Secret")) {
                    return Err(Unsure::Secret);
                }
            }
            "apiVersion" => self.has_version = true,
            "<<" => self.has_merge = true,
            _ => {}
        }
        let (place, below) = self.enter(line.column, key.name, value, is_item);
        let start = line.end - key.rest.len();
        let depth = self.mappings.len();
        let what = match key.name {
            "data" => What::Data,
            "stringData" => What::SecretData,
            name => {
                let written = Written::of(value);
                if written == Written::Nothing {
                    self.awaited = Some(Awaited {
                        column: line.column,
                        start,
                        key: name,
                        place,
                        depth,
                    });
                }
                let what = place.judge(name, value, written, self.rules);
                self.doubt(what, written)
            }
        };
        if what != What::Nothing {
            let start = match what {
                What::Data | What::SecretData => start,
                // Aliases of an anchor have something to refer to.
                _ => self.behind_properties(start, line.end),
            };
            self.open(line.column, (start, line.end), what, depth)?;
        }
        self.read_on(line, start, below)
    }

    /// Takes a line that isn't a member of a mapping.
    fn take_other(
        &mut self,
        line: Line<'t>,
        awaited: Option<Awaited<'t>>,
        is_item: bool,
    ) -> Result<(), Unsure> {
        let value = value_of(line.content);
        let written = Written::of(value);
        let start = line.start_of_content();
        if let Some(awaited) = awaited {
            let Awaited { key, place, .. } = awaited;
            let what = place.judge(key, value, written, self.rules);
            let what = self.doubt(what, written);
            if what != What::Nothing {
                let span = (awaited.start, line.end);
                self.open(awaited.column, span, what, awaited.depth)?;
            }
        } else if !self.is_below_value(line.column) {
            let place = self.mappings.last().map_or(Place::TOP, |last| last.below);
            let place = place.of_members(is_item);
            let what = self.doubt(place.judge_item(written), written);
            if what != What::Nothing {
                let span = (start.saturating_sub(usize::from(is_item)), line.end);
                self.open(line.column, span, what, self.mappings.len())?;
            }
        }
        let below = self.mappings.last().map_or(Place::TOP, |last| last.below);
        // Behind the action of a template, or a key that isn't understood.
        let colon = line.content.find(": ").filter(|_| {
            let is_value = line.content.starts_with(['{', '[', '"', '\'', '&', '!']);
            !is_value || is_action_opening(line.content)
        });
        self.read_on(line, colon.map_or(start, |colon| start + colon + 1), below)
    }

    /// Reads the brackets or quotes that a value begins with, also on the lines that follow.
    fn read_on(&mut self, line: Line<'t>, start: usize, place: Place<'t>) -> Result<(), Unsure> {
        let start = self.behind_properties(start, line.end);
        let rest = self.text.get(start..line.end).unwrap_or_default();
        let start = start + (rest.len() - rest.trim_ascii_start().len());
        let rest = rest.trim_ascii_start();
        let is_collection = rest.starts_with(['{', '[']) && !is_action_opening(rest);
        let is_quoted = rest.starts_with(['"', '\'']);
        self.is_unsure |= !is_collection && has_pair(rest, self.rules);
        if self.is_open || !(is_collection || is_quoted) {
            return Ok(());
        }
        let end = if is_collection {
            self.read_flow(start, place)?
        } else {
            end_of_quoted(self.text, start)
        };
        let Some(end) = end else {
            self.is_open = true;
            self.is_unsure |= is_collection && has_pair(rest, self.rules);
            return Ok(());
        };
        if end > line.end {
            self.read = end;
            for line in Lines::new(self.text, line.after, self.text.len()) {
                if line.start_of_content() >= end {
                    break;
                }
                let is_kind = self.may_go_on_with_kind && line.content.contains("Secret");
                if is_kind || has_key_that_counts(line.content) || has_secret(line.content) {
                    return Err(Unsure::Secret);
                }
                // It may be no text in quotes at all, but a part of another text.
                let key = line.without_dashes().key().filter(|_| is_quoted);
                self.is_unsure |= key.is_some_and(|key| {
                    let value = value_of(key.rest);
                    let what = Place::TOP.judge(key.name, value, Written::of(value), self.rules);
                    what == What::ByKey
                });
            }
        }
        Ok(())
    }

    /// Where what is written begins, behind a tag and an anchor.
    fn behind_properties(&self, start: usize, end: usize) -> usize {
        let value = self.text.get(start..end).unwrap_or_default();
        if !value.trim_ascii_start().starts_with(['!', '&']) {
            return start;
        }
        // With the space in front of it.
        let behind = behind_properties(value);
        (end - behind.len()).saturating_sub(1).max(start)
    }

    /// Notes a value that would go but stands elsewhere.
    pub(super) fn doubt(&mut self, what: What, written: Written) -> What {
        if written == Written::Alias && what != What::Nothing {
            self.is_unsure = true;
            return What::Nothing;
        }
        what
    }

    /// Adds a value that the next lines may belong to.
    fn open(
        &mut self,
        column: usize,
        (start, end): (usize, usize),
        what: What,
        depth: usize,
    ) -> Result<(), Unsure> {
        self.open.push(self.values.len());
        let value = Value {
            start,
            end,
            column,
            depth,
            what,
            form: Form::Yaml,
        };
        push_bounded(&mut self.values, value)?;
        Ok(())
    }

    /// Whether a line at this column may be a part of somebody's data.
    fn is_in_data(&self, column: usize) -> bool {
        let values = self.open.iter().filter_map(|value| self.values.get(*value));
        let mut columns = values.map(|value| value.column);
        columns
            .next_back()
            .is_some_and(|innermost| column <= innermost)
    }

    /// Whether something at this column is indented below a value.
    fn is_below_value(&self, column: usize) -> bool {
        let outermost = self.open.first().and_then(|value| self.values.get(*value));
        outermost.is_some_and(|value| value.column < column)
    }

    /// Takes a key into the mapping at this column: the place of it, and of what is below it.
    fn enter(
        &mut self,
        column: usize,
        key: &'t str,
        value: &'t str,
        is_item: bool,
    ) -> (Place<'t>, Place<'t>) {
        let around = self.mappings.last();
        if around.is_none_or(|mapping| mapping.column < column) {
            let place = around.map_or(Place::TOP, |mapping| mapping.below);
            let place = place.of_members(is_item);
            self.mappings.push(Mapping {
                column,
                place,
                below: place,
                says: Says::default(),
                values: self.values.len(),
            });
        }
        let Some(mapping) = self.mappings.last_mut() else {
            return (Place::TOP, Place::TOP);
        };
        mapping.says.listen(key, value, self.rules);
        self.has_secret |= mapping.says.is_secret();
        mapping.below = mapping.place.below(key, self.rules);
        (mapping.place, mapping.below)
    }

    /// Ends the values that a line at this column is not a part of.
    fn end_values(&mut self, column: usize, is_item: bool) {
        while let Some(last) = self.open.last() {
            let Some(value) = self.values.get_mut(*last) else {
                break;
            };
            // The items of a list may stand right below its key.
            if value.column < column || (value.column == column && is_item) {
                break;
            }
            value.end = value.end.max(self.end);
            self.open.pop();
        }
    }

    /// Ends the mappings that are deeper than this column.
    fn end_mappings(&mut self, column: usize) {
        while let Some(mapping) = self.mappings.pop_if(|mapping| mapping.column > column) {
            self.end_mapping(mapping.values, self.mappings.len() + 1, mapping.says);
        }
    }

    /// Decides about the values of a mapping that has ended.
    pub(super) fn end_mapping(&mut self, values: usize, depth: usize, says: Says) {
        let values = self.values.get_mut(values..).unwrap_or_default();
        breathe_after(size_of_val(values));
        for value in values {
            value.what = match value.what {
                What::If(condition) if value.depth == depth => says.decide(condition),
                What::Data | What::Copy if says.is_secret() => What::SecretData,
                what => what,
            };
        }
    }

    pub(super) fn end_document(&mut self) {
        self.end_values(0, false);
        self.end_mappings(0);
        if let Some(mapping) = self.mappings.pop() {
            self.end_mapping(mapping.values, 1, mapping.says);
        }
        self.is_open = false;
        self.awaited = None;
        self.may_go_on_with_kind = false;
    }

    /// How many mappings are around.
    pub(super) fn depth(&self) -> usize {
        self.mappings.len()
    }

    pub(super) fn edits(&self) -> Result<Vec<Edit>, Unsure> {
        if self.has_merge && self.has_secret {
            return Err(Unsure::Secret);
        }
        let is_manifest = self.is_manifest();
        if is_manifest && (self.is_unsure || self.has_odd_key) {
            return Err(Unsure::Value);
        }
        if self.has_odd_key {
            return Err(Unsure::Secret);
        }
        let mut edits = Vec::new();
        let mut done = 0;
        for value in &self.values {
            let Value {
                start, end, form, ..
            } = *value;
            breathe_after(end - start);
            match value.what {
                // Values inside of others are done with these.
                What::SecretData if start >= done => {
                    redact_block(self.text, value, &mut edits)?;
                    done = end;
                }
                What::ByKey if is_manifest => {
                    let written = self.text.get(start..end).unwrap_or_default();
                    if !closes(written) {
                        return Err(Unsure::Value);
                    }
                    if !is_empty_or_redacted(written) {
                        push_bounded(&mut edits, Edit { start, end, form })?;
                    }
                }
                _ => {}
            }
        }
        settle(&mut edits);
        Ok(edits)
    }
}

/// Whether a part of a text is a key that may make a Secret of something, if it is a key.
fn has_key_that_counts(part: &str) -> bool {
    ["kind", "data", "stringData"]
        .iter()
        .any(|key| ends_of_keys(part, key).next().is_some())
}
