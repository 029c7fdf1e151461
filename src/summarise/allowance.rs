//! How much of one payload is looked at.
//!
//! Invariant: summarising a payload costs a bounded amount of time and memory, whatever it holds.
//! One that holds more is read to its end all the same, to find out whether it is JSON, but its
//! states count as unknown.

use std::cell::Cell;

use memchr::memchr2;

use crate::pace::breathe;

/// Members and items of the states in a payload. A payload of 4 MiB usually has some 100,000.
pub(super) const MAX_VALUES: usize = 1_000_000;
/// Bytes of a string with escapes, which the parser copies.
const MAX_ESCAPED_BYTES: usize = 4 * 1024 * 1024;
/// Values that take some 50 µs.
const VALUES_PER_BREATH: usize = 512;

/// What is left to look at.
#[derive(Debug)]
pub(super) struct Allowance {
    values: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            values: Cell::new(MAX_VALUES),
            is_exceeded: Cell::new(false),
        }
    }
}

impl Allowance {
    /// Takes one value; `false` if there were too many, so that it is to be skipped.
    pub(super) fn take(&self) -> bool {
        let left = self.values.get();
        if left.is_multiple_of(VALUES_PER_BREATH) {
            breathe();
        }
        if left == 0 {
            self.is_exceeded.set(true);
            return false;
        }
        self.values.set(left - 1);
        true
    }

    /// Something was skipped.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }
}

/// Whether a JSON text has a string that is too long to be looked at.
pub(super) fn has_oversized_string(json: &[u8]) -> bool {
    // A string of that length covers one of these blocks, and no quote in there ends it. Most
    // texts have one within a few bytes, so that they need not be searched.
    let mut blocks = json.chunks_exact(MAX_ESCAPED_BYTES / 2);
    blocks.any(|block| !has_plain_quote(block)) && longest_escaped(json) > MAX_ESCAPED_BYTES
}

/// Whether there is a quote that no backslash stands before.
fn has_plain_quote(block: &[u8]) -> bool {
    let mut quotes = memchr::memchr_iter(b'"', block);
    quotes.any(|at| at > 0 && block.get(at - 1) != Some(&b'\\'))
}

/// The length of the longest string that has an escape in it.
fn longest_escaped(json: &[u8]) -> usize {
    let mut longest = 0;
    // Where the string began that we are in, and whether it has an escape.
    let mut string: Option<(usize, bool)> = None;
    let mut at = 0;
    while let Some(hit) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += hit + 1;
        let is_quote = json.get(at - 1) == Some(&b'"');
        string = match string {
            None if is_quote => Some((at, false)),
            None => None,
            Some((begun, has_escape)) if is_quote => {
                if has_escape {
                    longest = longest.max(at - begun);
                }
                None
            }
            Some((begun, _)) => {
                // Whatever is escaped, it ends no string.
                at += 1;
                Some((begun, true))
            }
        };
        breathe();
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_that_would_be_copied_are_found() {
        let long = "x".repeat(MAX_ESCAPED_BYTES + 1);
        let quotes = r#"\""#.repeat(MAX_ESCAPED_BYTES);
        for json in [
            format!(r#"{{"a":1,"b":"\n{long}"}}"#),
            format!(r#"{{"a":1,"{long}\\":2}}"#),
            format!(r#"["\\",{{"a":"{quotes}"}}]"#),
        ] {
            assert!(has_oversized_string(json.as_bytes()));
        }
    }

    #[test]
    fn strings_that_need_no_copy_may_be_of_any_length() {
        let long = "x".repeat(2 * MAX_ESCAPED_BYTES);
        let numbers = "1,".repeat(2 * MAX_ESCAPED_BYTES);
        let many = r#""\n","#.repeat(MAX_ESCAPED_BYTES);
        for json in [
            String::new(),
            format!(r#"{{"a\n":"{long}","b":"\\"}}"#),
            format!(r#"{{"a":[{numbers}1]}}"#),
            format!("[{many}1]"),
        ] {
            assert!(!has_oversized_string(json.as_bytes()));
        }
    }
}
