//! Finds the values to redact in one pass over a JSON text, without building anything of it.
//!
//! An object may say that it is a Secret after its data has gone by, so the places of such values
//! are noted on the way and decided on when the object ends.
//!
//! Invariant: the text is known to be valid JSON. Memory grows with the nesting and with the
//! values under suspicion, not with the text.

use std::{borrow::Cow, ops::Range};

use memchr::{memchr2, memmem};

use super::{Pointer, REDACTED, Rules};

/// Crossplane redacts byte fields before they are written in base64.
const REDACTED_BASE64: &str = "KipSRURBQ1RFRCoq";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Under `connectionDetails` and `credentials` that are part of somebody's spec, these say where a
/// secret lies, not what it is. Without them neither a `ProviderConfig` nor the input of
/// function-patch-and-transform could be read, or replayed.
const REFERENCES: [&str; 8] = [
    "name",
    "namespace",
    "type",
    "source",
    "secretRef",
    "fromConnectionSecretKey",
    "fromFieldPath",
    "env",
];

/// What is to happen to the values below a point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Treatment {
    Keep,
    Redact,
    /// Redact but for [`REFERENCES`].
    RedactSpec,
}

#[derive(Debug)]
struct Frame<'t> {
    is_object: bool,
    treatment: Treatment,
    /// The member being read, once its key has gone by.
    key: Option<Cow<'t, str>>,
    /// The element being read.
    index: usize,
    is_v1: bool,
    is_secret: bool,
    /// Ranges of `Scan::suspects` to redact if this object turns out to be a Secret.
    suspects: Vec<Range<usize>>,
}

struct Scan<'t, 'r> {
    text: &'t str,
    rules: &'r Rules,
    stack: Vec<Frame<'t>>,
    found: Vec<Range<usize>>,
    /// Values that belong to a Secret if one of the objects around them is one.
    suspects: Vec<Range<usize>>,
}

/// The places of all values to redact, in order.
pub(super) fn find_secret_values(text: &str, rules: &Rules) -> Vec<Range<usize>> {
    let mut scan = Scan {
        text,
        rules,
        stack: Vec::new(),
        found: Vec::new(),
        suspects: Vec::new(),
    };
    scan.run();
    let mut found = scan.found;
    found.sort_unstable_by_key(|span| span.start);
    found.dedup();
    found
}

impl<'t> Scan<'t, '_> {
    fn run(&mut self) {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            at = match byte {
                b'{' | b'[' => {
                    self.open(*byte == b'{');
                    at + 1
                }
                b'}' | b']' => {
                    self.close();
                    at + 1
                }
                b'"' => {
                    let end = end_of_string(bytes, at);
                    self.string(at..end);
                    end
                }
                b',' => {
                    self.next_element();
                    at + 1
                }
                b':' | b' ' | b'\t' | b'\n' | b'\r' => at + 1,
                _ => {
                    let end = end_of_scalar(bytes, at);
                    self.leaf(at..end, false);
                    end
                }
            };
        }
    }

    fn open(&mut self, is_object: bool) {
        let treatment = self.treatment(!is_object);
        self.begin_value();
        self.stack.push(Frame {
            is_object,
            treatment,
            key: None,
            index: 0,
            is_v1: false,
            is_secret: false,
            suspects: Vec::new(),
        });
    }

    fn close(&mut self) {
        if let Some(frame) = self.stack.pop()
            && frame.is_v1
            && frame.is_secret
        {
            for range in frame.suspects {
                self.found
                    .extend(self.suspects.get(range).unwrap_or_default().iter().cloned());
            }
        }
        self.end_value();
        if self.stack.is_empty() {
            self.suspects.clear();
        }
    }

    fn string(&mut self, span: Range<usize>) {
        match self.stack.last_mut() {
            Some(frame) if frame.is_object && frame.key.is_none() => {
                frame.key = Some(unquote(self.text, &span));
            }
            _ => self.leaf(span, true),
        }
    }

    fn leaf(&mut self, span: Range<usize>, is_string: bool) {
        let treatment = self.treatment(false);
        self.begin_value();
        let text = self.text.get(span.clone()).unwrap_or_default();
        let content = if is_string {
            unquote(self.text, &span)
        } else {
            Cow::Borrowed(text)
        };
        if let Some(frame) = self.stack.last_mut() {
            match frame.key.as_deref() {
                Some("apiVersion") => frame.is_v1 = content == "v1",
                Some("kind") => frame.is_secret = content == "Secret",
                _ => {}
            }
        }
        let is_secret_manifest = || {
            self.current_key() == Some(LAST_APPLIED)
                && memmem::find(content.as_bytes(), b"\"Secret\"").is_some()
        };
        if !matches!(&*content, REDACTED | REDACTED_BASE64) && text != "null" {
            if treatment != Treatment::Keep || is_secret_manifest() {
                self.found.push(span.clone());
            }
            self.suspects.push(span);
        }
        self.end_value();
    }

    fn next_element(&mut self) {
        if let Some(frame) = self.stack.last_mut() {
            frame.index += 1;
        }
    }

    /// Notes where the values of `data` begin among the suspects.
    fn begin_value(&mut self) {
        let start = self.suspects.len();
        if let Some(owner) = self.owner_of_current_value() {
            owner.suspects.push(start..start);
        }
    }

    /// Notes where they end, and that the member has been read.
    fn end_value(&mut self) {
        let end = self.suspects.len();
        if let Some(owner) = self.owner_of_current_value()
            && let Some(range) = owner.suspects.last_mut()
        {
            range.end = end;
        }
        if let Some(frame) = self.stack.last_mut() {
            frame.key = None;
        }
    }

    /// The object that decides over the current value, if it turns out to be a Secret: the one
    /// whose `data` it is, or whose `metadata.annotations` it stands in.
    fn owner_of_current_value(&mut self) -> Option<&mut Frame<'t>> {
        let levels_up = match self.current_key()? {
            "data" | "stringData" => 1,
            LAST_APPLIED => 3,
            _ => return None,
        };
        let owner = self.stack.len().checked_sub(levels_up)?;
        self.stack.get_mut(owner)
    }

    fn current_key(&self) -> Option<&str> {
        self.stack.last()?.key.as_deref()
    }

    /// What is to happen to the value that begins here.
    fn treatment(&self, is_array: bool) -> Treatment {
        let Some(frame) = self.stack.last() else {
            return Treatment::Keep;
        };
        let Some(key) = frame.key.as_deref() else {
            return if self.is_pointed_at() {
                Treatment::Redact
            } else {
                frame.treatment
            };
        };
        if frame.treatment == Treatment::Redact
            || self.rules.keys.is_match(key)
            || self.is_pointed_at()
        {
            return Treatment::Redact;
        }
        match key {
            // A map from keys to values where the protocol has it; a list in somebody's spec.
            "connectionDetails" if is_array => Treatment::RedactSpec,
            "connectionDetails" => Treatment::Redact,
            // The protocol's own stand at the top.
            "credentials" if self.stack.len() == 1 => Treatment::Redact,
            "credentials" => Treatment::RedactSpec,
            _ if frame.treatment == Treatment::RedactSpec && REFERENCES.contains(&key) => {
                Treatment::Keep
            }
            _ => frame.treatment,
        }
    }

    fn is_pointed_at(&self) -> bool {
        self.rules.pointers.iter().any(|Pointer(path)| {
            path.len() == self.stack.len()
                && path.iter().zip(&self.stack).all(|(segment, frame)| {
                    segment == "*"
                        || frame.key.as_deref().map_or_else(
                            || *segment == frame.index.to_string(),
                            |key| key == segment,
                        )
                })
        })
    }
}

/// The content of the string at `span`, quotes included in the span.
fn unquote<'t>(text: &'t str, span: &Range<usize>) -> Cow<'t, str> {
    let quoted = text.get(span.clone()).unwrap_or_default();
    let inner = quoted
        .get(1..quoted.len().saturating_sub(1))
        .unwrap_or_default();
    if inner.contains('\\') {
        // A lone surrogate is valid JSON and no string; its raw text will do.
        serde_json::from_str(quoted).map_or(Cow::Borrowed(inner), Cow::Owned)
    } else {
        Cow::Borrowed(inner)
    }
}

/// Where the string that begins at `start` ends, behind its closing quote.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(hit) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += hit + 1;
        if bytes.get(at - 1) == Some(&b'"') {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

/// Where the number or literal that begins at `start` ends.
fn end_of_scalar(bytes: &[u8], start: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    let rest = bytes.get(start..).unwrap_or_default();
    start + rest.iter().position(is_end).unwrap_or(rest.len()).max(1)
}
