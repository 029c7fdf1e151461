//! Finds the values to redact in one pass over a JSON text, without building anything of it.
//!
//! An object may say that it is a Secret after its data has gone by, so the places of such values
//! are noted on the way and decided on when the object ends.
//!
//! Invariant: the text is known to be valid JSON. Memory grows with the nesting and with the
//! values under suspicion, not with the text.

use std::{borrow::Cow, ops::Range};

use memchr::memmem;

use super::{
    Pointer, REDACTED, Rules,
    tokens::{end_of_scalar, end_of_string, unquote},
};

/// Crossplane redacts byte fields before they are written in base64.
const REDACTED_BASE64: &str = "KipSRURBQ1RFRCoq";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Under `connectionDetails` and `credentials` that are part of somebody's spec, values of these
/// say where a secret lies, not what it is. Without them neither a `ProviderConfig` nor the input
/// of function-patch-and-transform could be read, or replayed.
const REFERENCES: [&str; 6] = [
    "name",
    "namespace",
    "type",
    "source",
    "fromConnectionSecretKey",
    "fromFieldPath",
];
/// Annotations stand two levels below their object; a few more do no harm.
const ANNOTATION_DEPTH: usize = 8;
/// Stands among an XR's connection details in its status, and is no secret.
const PUBLISHED_AT: &str = "lastPublishedTime";

/// What is to happen to the values below a point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Treatment {
    Keep,
    Redact,
    /// Redact but for [`REFERENCES`].
    RedactSpec,
}

/// What an object says of itself.
#[derive(Clone, Copy, Debug, Default)]
struct Says {
    v1: bool,
    secret: bool,
    list_of_secrets: bool,
}

#[derive(Debug)]
struct Frame<'t> {
    is_object: bool,
    treatment: Treatment,
    /// The member being read, once its key has gone by.
    key: Option<Cow<'t, str>>,
    /// The element being read.
    index: usize,
    says: Says,
    /// This is the `data` of the object around it; its values begin here among the suspects.
    is_data_since: Option<usize>,
    /// It has suspects.
    is_undecided: bool,
    /// Suspects to redact if this object turns out to be a Secret.
    suspects: Vec<Range<usize>>,
    /// Suspects to redact if it turns out to be a list of Secrets, which leave their kind out.
    items: Vec<Range<usize>>,
}

struct Scan<'t, 'r> {
    text: &'t str,
    rules: &'r Rules,
    stack: Vec<Frame<'t>>,
    found: Vec<Range<usize>>,
    /// Values that are to be redacted if one of the objects around them is a Secret.
    suspects: Vec<Range<usize>>,
    /// How many objects' `data` we are in.
    data_depth: usize,
    /// How many of the objects that we are in have suspects.
    undecided: usize,
}

/// The places of all values to redact, in order.
pub(super) fn find_secret_values(text: &str, rules: &Rules) -> Vec<Range<usize>> {
    let mut scan = Scan {
        text,
        rules,
        stack: Vec::new(),
        found: Vec::new(),
        suspects: Vec::new(),
        data_depth: 0,
        undecided: 0,
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
        let treatment = if is_object {
            self.treatment(Value::Object)
        } else {
            self.treatment(Value::Array)
        };
        let is_data = self.is_data();
        self.data_depth += usize::from(is_data);
        self.stack.push(Frame {
            is_object,
            treatment,
            key: None,
            index: 0,
            says: Says::default(),
            is_data_since: is_data.then_some(self.suspects.len()),
            is_undecided: false,
            suspects: Vec::new(),
            items: Vec::new(),
        });
    }

    fn close(&mut self) {
        let Some(frame) = self.stack.pop() else {
            return;
        };
        if frame.says.v1 && frame.says.secret {
            self.redact_suspects(&frame.suspects);
        } else if frame.says.v1 && frame.says.list_of_secrets {
            self.redact_suspects(&frame.items);
        } else if !frame.suspects.is_empty()
            && let Some(list) = self.list_around_item()
        {
            list.items.extend(frame.suspects);
            let list = self.stack.len() - 2;
            self.leave_undecided(list);
        }
        if let Some(start) = frame.is_data_since {
            self.data_depth -= 1;
            let range = start..self.suspects.len();
            self.suspect_of(self.stack.len().saturating_sub(1), range);
        }
        self.undecided -= usize::from(frame.is_undecided);
        if self.undecided == 0 && self.data_depth == 0 {
            self.suspects.clear();
        }
        self.end_member();
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
        let text = self.text.get(span.clone()).unwrap_or_default();
        let content = if is_string {
            unquote(self.text, &span)
        } else {
            Cow::Borrowed(text)
        };
        let key = self.stack.last().and_then(|frame| frame.key.as_deref());
        let is_last_applied = key == Some(LAST_APPLIED);
        let (is_version, is_kind) = (key == Some("apiVersion"), key == Some("kind"));
        if let Some(frame) = self.stack.last_mut() {
            // Of two members of one name either may count for whoever reads it.
            frame.says.v1 |= is_version && content == "v1";
            frame.says.secret |= is_kind && content == "Secret";
            frame.says.list_of_secrets |= is_kind && content == "SecretList";
        }
        if !matches!(&*content, REDACTED | REDACTED_BASE64) && text != "null" {
            if self.treatment(Value::Leaf) != Treatment::Keep
                || (is_last_applied && self.holds_secret(&content))
            {
                self.found.push(span.clone());
            }
            self.suspect(span, is_last_applied);
        }
        self.end_member();
    }

    /// Notes a value that is to go if an object around it is a Secret: the one whose `data` it is
    /// or is in, or any whose annotation it is.
    fn suspect(&mut self, span: Range<usize>, is_last_applied: bool) {
        let is_data = self.is_data();
        if self.data_depth == 0 && !is_data && !is_last_applied {
            return;
        }
        let place = self.suspects.len();
        self.suspects.push(span);
        let depth = self.stack.len();
        let owners = if is_last_applied {
            depth.saturating_sub(ANNOTATION_DEPTH)..depth
        } else {
            depth.saturating_sub(usize::from(is_data))..depth
        };
        for owner in owners {
            self.suspect_of(owner, place..place + 1);
        }
    }

    /// Notes suspects for the object at this depth.
    fn suspect_of(&mut self, depth: usize, range: Range<usize>) {
        if let Some(owner) = self.stack.get_mut(depth) {
            owner.suspects.push(range);
            self.leave_undecided(depth);
        }
    }

    /// The object at this depth decides over some suspects when it ends.
    fn leave_undecided(&mut self, depth: usize) {
        if let Some(frame) = self.stack.get_mut(depth)
            && !frame.is_undecided
        {
            frame.is_undecided = true;
            self.undecided += 1;
        }
    }

    fn redact_suspects(&mut self, ranges: &[Range<usize>]) {
        for range in ranges {
            self.found.extend(
                self.suspects
                    .get(range.clone())
                    .unwrap_or_default()
                    .iter()
                    .cloned(),
            );
        }
    }

    fn next_element(&mut self) {
        if let Some(frame) = self.stack.last_mut() {
            frame.index += 1;
        }
    }

    fn end_member(&mut self) {
        if let Some(frame) = self.stack.last_mut() {
            frame.key = None;
        }
    }

    /// The value that begins here is the `data` of the object around it.
    fn is_data(&self) -> bool {
        let key = self.stack.last().and_then(|frame| frame.key.as_deref());
        matches!(key, Some("data" | "stringData"))
    }

    /// The object in whose `items` the value stands that has just ended.
    fn list_around_item(&mut self) -> Option<&mut Frame<'t>> {
        let [.., list, items] = self.stack.as_mut_slice() else {
            return None;
        };
        let is_item = !items.is_object && list.key.as_deref() == Some("items");
        is_item.then_some(list)
    }

    /// Whether a manifest in text form holds something that would be redacted in its own right.
    fn holds_secret(&self, manifest: &str) -> bool {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(manifest).is_ok();
        (is_json && !find_secret_values(manifest, self.rules).is_empty())
            || mentions_secret_kind(manifest)
    }

    /// What is to happen to the value that begins here.
    fn treatment(&self, value: Value) -> Treatment {
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
        if self.rules.keys.is_match(key) || self.is_pointed_at() {
            return Treatment::Redact;
        }
        match (key, frame.treatment) {
            (PUBLISHED_AT, _) if self.key_around() == Some("connectionDetails") => Treatment::Keep,
            (_, Treatment::Redact) => Treatment::Redact,
            // A map from keys to values where the protocol has it; a list in somebody's spec.
            ("connectionDetails", _) if value == Value::Array => Treatment::RedactSpec,
            ("connectionDetails", _) => Treatment::Redact,
            // The protocol's own stand at the top.
            ("credentials", _) if self.stack.len() == 1 => Treatment::Redact,
            ("credentials", _) => Treatment::RedactSpec,
            (key, Treatment::RedactSpec) if value == Value::Leaf && self.is_reference(key) => {
                Treatment::Keep
            }
            (_, inherited) => inherited,
        }
    }

    fn is_reference(&self, key: &str) -> bool {
        REFERENCES.contains(&key) || (key == "key" && self.key_around() == Some("secretRef"))
    }

    /// The key of the object that we are in.
    fn key_around(&self) -> Option<&str> {
        let [.., around, _] = self.stack.as_slice() else {
            return None;
        };
        around.key.as_deref()
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

/// What begins at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Value {
    Object,
    Array,
    Leaf,
}

/// Whether a text names the kind of Secrets in quotes, however often it was escaped.
fn mentions_secret_kind(text: &str) -> bool {
    let word = b"\"Secret";
    memmem::find_iter(text.as_bytes(), word).any(|at| {
        let next = text.as_bytes().get(at + word.len());
        matches!(next, Some(b'"' | b'\\'))
    })
}
