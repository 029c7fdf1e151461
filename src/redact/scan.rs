//! Finds the values to redact in one pass over a JSON text, without building anything of it.
//!
//! An object may say that it is a Secret after its data has gone by. So the places of blocks such
//! as `data` are noted on the way; if the object turns out to be a Secret, a second pass goes over
//! these blocks, and over nothing else.
//!
//! Invariant: the text is known to be valid JSON. Time grows with the text, memory doesn't: what
//! is nested too deeply is redacted whole, and a text with too many values or blocks to keep track
//! of is given up, to be withheld.

use std::{cmp::Reverse, ops::Range};

use super::{
    REDACTED, REDACTED_BASE64, Rules,
    edits::{Edit, TooMany, push_bounded, settle},
    embedded::{Inside, look_inside},
    frames::{Block, Frame, Member, Role, Says, Treatment, is_named, is_secret_type, role_of},
    keys::names_secret,
    references::{Condition, Fate, is_source},
    tokens::{end_of_container, end_of_scalar, end_of_string, unquote},
    words::Words,
};
use crate::pace::breathe;

/// What is nested more deeply than this is redacted whole. Nothing that Kubernetes takes comes
/// near it.
pub const MAX_DEPTH: usize = 1_000;

/// How often the scan lets others have the CPU.
const BREATHE_EVERY: usize = 64 * 1024;

pub(super) struct Scan<'t, 'r> {
    pub(super) text: &'t str,
    pub(super) rules: &'r Rules,
    /// How many strings the text is in.
    pub(super) strings_around: u8,
    words: Words<'t, 'r>,
    pub(super) stack: Vec<Frame<'t>>,
    edits: Vec<Edit>,
    /// Values that stay or go by what stands beside them.
    undecided: Vec<(Range<usize>, Condition)>,
    /// Blocks to redact if an object around them is a Secret.
    candidates: Vec<Block>,
    /// Blocks of Secrets; complete in the second pass.
    pub(super) blocks: Vec<Block>,
    /// The next of them in the second pass.
    pub(super) next_block: usize,
    /// The block that the second pass is in.
    pub(super) inside: Option<Block>,
}

/// What begins at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Object,
    Array,
    Leaf,
}

/// The places of all values to redact, in order.
pub(super) fn find_secret_values(
    text: &str,
    rules: &Rules,
    strings_around: u8,
) -> Result<Vec<Edit>, TooMany> {
    let mut scan = Scan {
        text,
        rules,
        strings_around,
        words: Words::new(&rules.search, text.as_bytes(), 0),
        stack: Vec::new(),
        edits: Vec::new(),
        undecided: Vec::new(),
        candidates: Vec::new(),
        blocks: Vec::new(),
        next_block: 0,
        inside: None,
    };
    scan.run(0..text.len())?;
    if !scan.blocks.is_empty() {
        scan.run_over_blocks()?;
    }
    let mut edits = scan.edits;
    settle(&mut edits);
    Ok(edits)
}

impl Scan<'_, '_> {
    fn run(&mut self, range: Range<usize>) -> Result<(), TooMany> {
        let bytes = self.text.as_bytes().get(..range.end).unwrap_or_default();
        let mut at = range.start;
        let mut breathe_at = at + BREATHE_EVERY;
        while let Some(byte) = bytes.get(at) {
            at = match byte {
                b'{' | b'[' if self.depth() >= MAX_DEPTH => {
                    let end = end_of_container(bytes, at);
                    self.redact(&(at..end))?;
                    self.end_member();
                    end
                }
                b'{' | b'[' => {
                    self.open(at, *byte == b'{');
                    at + 1
                }
                b'}' | b']' => {
                    self.close(at + 1)?;
                    at + 1
                }
                b'"' => {
                    let end = end_of_string(bytes, at);
                    if self.expects_key() {
                        self.begin_member(at..end);
                    } else {
                        self.leaf(at..end, true)?;
                    }
                    end
                }
                b',' => {
                    self.next_element();
                    at + 1
                }
                b':' | b' ' | b'\t' | b'\n' | b'\r' => at + 1,
                _ => {
                    let end = end_of_scalar(bytes, at);
                    self.leaf(at..end, false)?;
                    end
                }
            };
            if at >= breathe_at {
                breathe();
                breathe_at = at + BREATHE_EVERY;
            }
        }
        Ok(())
    }

    /// Goes over the outermost blocks of Secrets, which have the others in them.
    fn run_over_blocks(&mut self) -> Result<(), TooMany> {
        self.blocks
            .sort_unstable_by_key(|block| (block.start, Reverse(block.end)));
        let start = self.blocks.first().map_or(0, |block| block.start);
        self.words = Words::new(&self.rules.search, self.text.as_bytes(), start);
        let mut done = 0;
        for at in 0..self.blocks.len() {
            let Some(block) = self.blocks.get(at).copied() else {
                break;
            };
            if block.start >= done {
                done = block.end;
                self.inside = Some(block);
                self.run(block.start..block.end)?;
            }
        }
        Ok(())
    }

    /// How many objects and lists are around this place.
    fn depth(&self) -> usize {
        self.stack.len() + self.inside.map_or(0, |block| block.depth)
    }

    fn open(&mut self, start: usize, is_object: bool) {
        let value = if is_object {
            Value::Object
        } else {
            Value::Array
        };
        let treatment = self.treatment(start, value);
        let by_key = match self.stack.last() {
            Some(frame) => {
                let is_reference = matches!(frame.role(), Some(Role::References | Role::RemoteRef));
                frame.by_key && !is_reference
            }
            None => self.inside.is_none_or(|block| block.by_key),
        };
        self.stack.push(Frame {
            start,
            is_object,
            treatment,
            by_key,
            member: None,
            index: 0,
            says: Says::default(),
            undecided: self.undecided.len(),
            candidates: self.candidates.len(),
        });
    }

    fn close(&mut self, end: usize) -> Result<(), TooMany> {
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        self.decide(&frame)?;
        self.find_blocks_of_secret(&frame)?;
        let treatment = if frame.is_object {
            Treatment::Redact
        } else {
            Treatment::RedactSpec
        };
        self.suspect(frame.start..end, treatment)?;
        self.end_member();
        Ok(())
    }

    /// Redacts those values of an object that its other members make secrets of.
    fn decide(&mut self, frame: &Frame<'_>) -> Result<(), TooMany> {
        for (span, condition) in self.undecided.drain(frame.undecided..) {
            let stays = match condition {
                Condition::HasRemoteRef => frame.says.remote_ref,
                Condition::IsConnectionDetail => frame.says.connection_detail,
                Condition::NameIsHarmless => !frame.says.secret_name,
            };
            if !stays {
                push_bounded(&mut self.edits, Edit::json(span.start, span.end))?;
            }
        }
        Ok(())
    }

    /// Tells the blocks of Secrets from others, once an object around them has ended.
    fn find_blocks_of_secret(&mut self, frame: &Frame<'_>) -> Result<(), TooMany> {
        let says = frame.says;
        let is_secret = says.secret || (says.secret_type && !says.kind);
        if is_secret || says.list {
            let mut others = frame.candidates;
            for at in frame.candidates..self.candidates.len() {
                let Some(block) = self.candidates.get(at).copied() else {
                    break;
                };
                if is_secret || block.is_in_kindless_item {
                    push_bounded(&mut self.blocks, block)?;
                } else {
                    self.candidates.swap(at, others);
                    others += 1;
                }
            }
            self.candidates.truncate(others);
        } else if frame.is_object && !says.kind && self.is_item() {
            let blocks = self.candidates.get_mut(frame.candidates..);
            for block in blocks.unwrap_or_default() {
                block.is_in_kindless_item = true;
            }
        }
        Ok(())
    }

    /// Whether the object that has just ended is one of somebody's `items`.
    fn is_item(&self) -> bool {
        let [.., list, items] = self.stack.as_slice() else {
            return false;
        };
        !items.is_object && list.key() == Some("items")
    }

    /// Notes the value that has just ended, if it goes once an object around it is a Secret.
    fn suspect(&mut self, span: Range<usize>, treatment: Treatment) -> Result<(), TooMany> {
        let Some(frame) = self.stack.last() else {
            return Ok(());
        };
        let treatment = match frame.role() {
            Some(Role::Data) => treatment,
            Some(Role::LastApplied) => Treatment::Redact,
            Some(Role::Annotations) => Treatment::RedactCopies,
            _ => return Ok(()),
        };
        if self.inside.is_some() || frame.treatment >= treatment {
            return Ok(());
        }
        let block = Block {
            start: span.start,
            end: span.end,
            depth: self.depth(),
            treatment,
            by_key: frame.by_key,
            is_in_kindless_item: false,
        };
        push_bounded(&mut self.candidates, block)
    }

    fn expects_key(&self) -> bool {
        let frame = self.stack.last();
        frame.is_some_and(|frame| frame.is_object && frame.member.is_none())
    }

    fn begin_member(&mut self, span: Range<usize>) {
        let key = unquote(self.text, &span);
        let is_name_of_resource = self.is_name_of_resource();
        let Some(frame) = self.stack.last_mut() else {
            return;
        };
        let mut member = Member {
            key,
            role: Role::Plain,
            is_named: false,
        };
        // Where everything goes, no key means anything.
        if frame.treatment < Treatment::Redact && !is_name_of_resource {
            let key = member.key.as_ref();
            let may_name_secret = frame.by_key && self.words.are_between(span.start, span.end);
            member.role = role_of(key, may_name_secret, self.rules);
            member.is_named = frame.by_key && is_named(key, self.rules);
            frame.says.remote_ref |= member.role == Role::RemoteRef;
            frame.says.connection_detail |= is_source(key);
        }
        frame.member = Some(member);
    }

    fn leaf(&mut self, span: Range<usize>, is_string: bool) -> Result<(), TooMany> {
        if self.is_beyond_suspicion(&span, is_string) {
            self.end_member();
            return Ok(());
        }
        if is_string {
            self.listen(&span);
        }
        let written = self.text.get(span.clone()).unwrap_or_default();
        if written != "null" && !is_redacted(written) {
            match self.fate(&span, is_string) {
                Fate::Goes => self.redact(&span)?,
                Fate::Stays if is_string => self.look_inside(&span)?,
                Fate::Stays => {}
                Fate::StaysIf(condition) => {
                    self.look_inside(&span)?;
                    push_bounded(&mut self.undecided, (span.clone(), condition))?;
                }
            }
            self.suspect(span, Treatment::Redact)?;
        }
        self.end_member();
        Ok(())
    }

    /// Whether a leaf stays, as most do, without a closer look.
    fn is_beyond_suspicion(&mut self, span: &Range<usize>, is_string: bool) -> bool {
        if self.rules.has_any() || self.inside.is_some() {
            return false;
        }
        let is_plain = self.stack.last().is_some_and(|frame| {
            let is_plain = matches!(frame.role(), None | Some(Role::Plain | Role::References));
            is_plain && frame.treatment == Treatment::Keep
        });
        is_plain && !(is_string && self.words.are_between(span.start, span.end))
    }

    /// Takes in what a string says of the object that it is a member of.
    fn listen(&mut self, span: &Range<usize>) {
        let Some(frame) = self.stack.last_mut() else {
            return;
        };
        let role = frame.role();
        // An empty one says nothing.
        frame.says.kind |= role == Some(Role::Kind) && !unquote(self.text, span).trim().is_empty();
        let is_of_interest = matches!(role, Some(Role::Kind | Role::Type | Role::Name));
        if !is_of_interest || !self.words.are_between(span.start, span.end) {
            return;
        }
        let text = unquote(self.text, span);
        // Of two members of one name either may count for whoever reads it.
        match role {
            Some(Role::Kind) => {
                frame.says.secret |= text.contains("Secret");
                frame.says.list |= text == "List";
            }
            Some(Role::Type) => frame.says.secret_type |= is_secret_type(&text),
            _ => frame.says.secret_name |= self.rules.secret_keys && names_secret(&text),
        }
    }

    /// Redacts what a string holds, if that is a manifest.
    fn look_inside(&mut self, span: &Range<usize>) -> Result<(), TooMany> {
        let has_word = self.words.are_between(span.start, span.end);
        match look_inside(self.text, span, has_word, self.rules, self.strings_around) {
            Inside::Nothing => Ok(()),
            Inside::Withhold => self.redact(span),
            Inside::Edits(edits) => edits
                .into_iter()
                .try_for_each(|edit| push_bounded(&mut self.edits, edit)),
        }
    }

    fn redact(&mut self, span: &Range<usize>) -> Result<(), TooMany> {
        push_bounded(&mut self.edits, Edit::json(span.start, span.end))
    }

    fn next_element(&mut self) {
        if let Some(frame) = self.stack.last_mut() {
            frame.index += 1;
        }
    }

    fn end_member(&mut self) {
        if let Some(frame) = self.stack.last_mut() {
            frame.member = None;
        }
    }
}

/// Whether a string has been redacted before, here or in Crossplane.
fn is_redacted(written: &str) -> bool {
    let text = written
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    matches!(text, Some(REDACTED | REDACTED_BASE64))
}
