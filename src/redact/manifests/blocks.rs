//! Redacts the `data` of a Secret in YAML: its keys stay, their values go.
//!
//! Invariant: of what is between the beginning and the end of the block nothing stays but its keys
//! and template actions that have no text in them.

use super::{
    Unsure, Value,
    lines::{Line, Lines, closes, is_empty_or_redacted, value_of},
};
use crate::redact::edits::{Edit, Form, push_bounded};

/// Keys in a list of what a Secret is made from elsewhere, such as an `ExternalSecret` has.
const KEYS_IN_LIST: [&str; 13] = [
    "conversionStrategy",
    "decodingStrategy",
    "key",
    "kind",
    "match",
    "metadataPolicy",
    "name",
    "property",
    "remoteKey",
    "remoteRef",
    "secretKey",
    "sourceRef",
    "version",
];

/// A block that is taken apart into lines.
struct Block<'t, 'e> {
    text: &'t str,
    /// Where its first line begins, behind the line of its key.
    start: usize,
    end: usize,
    edits: &'e mut Vec<Edit>,
}

/// The block has to go as a whole.
struct Whole;

/// Finds what goes of a block.
pub(super) fn redact_block(text: &str, value: &Value, edits: &mut Vec<Edit>) -> Result<(), Unsure> {
    let first_line = Lines::new(text, value.start, value.end).next();
    let is_inline = first_line.is_some_and(|line| !value_of(line.content).is_empty());
    let found = edits.len();
    let mut block = Block {
        text,
        start: first_line.map_or(value.end, |line| line.after),
        end: value.end,
        edits,
    };
    let is_taken_apart = !is_inline && block.redact_lines()?.is_ok();
    if !is_taken_apart {
        edits.truncate(found);
        redact_value(text, value.start, value.end, edits)?;
    }
    Ok(())
}

impl<'t> Block<'t, '_> {
    fn lines(&self) -> impl Iterator<Item = Line<'t>> + use<'t> {
        Lines::new(self.text, self.start, self.end).filter(|line| !line.is_blank())
    }

    fn redact_lines(&mut self) -> Result<Result<(), Whole>, Unsure> {
        if self.lines().any(|line| line.is_action() && line.has_text()) {
            return Ok(Err(Whole));
        }
        match self.lines().find(|line| !line.is_action()) {
            None => Ok(Ok(())),
            Some(first) if first.is_comment() => Ok(Err(Whole)),
            Some(first) if first.is_item() => self.redact_list(),
            Some(first) => self.redact_members(first.column),
        }
    }

    /// Redacts the values of all keys at this column.
    fn redact_members(&mut self, column: usize) -> Result<Result<(), Whole>, Unsure> {
        let mut member: Option<(usize, usize)> = None;
        for line in self.lines() {
            if line.column > column || line.is_comment() {
                // A part of the value, or a comment on it.
                if let Some((_, end)) = &mut member {
                    *end = line.end;
                }
            } else if line.is_action() {
                // Not a part of any value.
            } else if line.column < column {
                return Err(Unsure::Secret);
            } else {
                let Some(key) = line.key() else {
                    return Ok(Err(Whole));
                };
                self.redact_member(member.take())?;
                member = Some((line.end - key.rest.len(), line.end));
            }
        }
        self.redact_member(member)?;
        Ok(Ok(()))
    }

    fn redact_member(&mut self, member: Option<(usize, usize)>) -> Result<(), Unsure> {
        match member {
            Some((start, end)) => redact_value(self.text, start, end, self.edits),
            None => Ok(()),
        }
    }

    /// Redacts what doesn't belong into a list of references.
    fn redact_list(&mut self) -> Result<Result<(), Whole>, Unsure> {
        for line in self.lines() {
            if line.is_action() {
                continue;
            }
            let Some(key) = line.without_dashes().key() else {
                return Ok(Err(Whole));
            };
            if !KEYS_IN_LIST.contains(&key.name) {
                redact_value(self.text, line.end - key.rest.len(), line.end, self.edits)?;
            }
        }
        Ok(Ok(()))
    }
}

/// Redacts the value between these places, unless it is none.
fn redact_value(text: &str, start: usize, end: usize, edits: &mut Vec<Edit>) -> Result<(), Unsure> {
    let value = text.get(start..end).unwrap_or_default();
    if is_empty_or_redacted(value) {
        return Ok(());
    }
    if !closes(value) {
        return Err(Unsure::Secret);
    }
    let form = Form::Yaml;
    push_bounded(edits, Edit { start, end, form })?;
    Ok(())
}
