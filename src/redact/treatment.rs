//! What is to become of the value that begins at a place, by the keys around it.

use std::ops::Range;

use super::{
    Pointer,
    breaks::may_hold_manifest,
    frames::{Frame, Role, Treatment},
    references::{Condition, Fate, fate_of, is_time_by_form},
    scan::{Scan, Value},
    tokens::without_quotes,
};

/// A longer annotation of a Secret counts as a copy of it.
pub(super) const MAX_ANNOTATION: usize = 256;

impl Scan<'_, '_> {
    /// What is to happen to the value that begins here.
    pub(super) fn treatment(&mut self, start: usize, value: Value) -> Treatment {
        let of_block = self.treatment_by_block(start);
        let Some(frame) = self.stack.last() else {
            return of_block;
        };
        frame.treatment.max(of_block).max(self.own_treatment(value))
    }

    /// In the second pass, what the block that begins here is to be treated with.
    fn treatment_by_block(&mut self, start: usize) -> Treatment {
        if self.inside.is_some() {
            while let Some(block) = self.blocks.get(self.next_block) {
                if block.start >= start {
                    break;
                }
                self.next_block += 1;
            }
            if let Some(block) = self.blocks.get(self.next_block)
                && block.start == start
            {
                return block.treatment;
            }
        }
        Treatment::Keep
    }

    /// What is to happen to the value that begins here, by itself.
    fn own_treatment(&self, value: Value) -> Treatment {
        if self.is_pointed_at() {
            return Treatment::Redact;
        }
        match self.role() {
            // A map from keys to values where the protocol has it; a list in somebody's spec.
            Some(Role::ConnectionDetails)
                if value == Value::Array && !self.is_in_state_of_protocol() =>
            {
                Treatment::RedactSpec
            }
            Some(Role::ConnectionDetails) => Treatment::Redact,
            // The protocol's own stand at the top.
            Some(Role::Credentials) if self.is_payload() && self.stack.len() == 1 => {
                Treatment::Redact
            }
            Some(Role::Credentials) => Treatment::RedactSpec,
            // Not so in the schema of a Secret.
            Some(Role::StringData) if self.key_around() != Some("properties") => Treatment::Redact,
            _ if self.is_named() => Treatment::RedactSpec,
            _ => Treatment::Keep,
        }
    }

    /// What is to become of the leaf at this place.
    pub(super) fn fate(&mut self, span: &Range<usize>, is_string: bool) -> Fate {
        let treatment = self.treatment(span.start, Value::Leaf);
        let text = if is_string {
            without_quotes(self.text, span)
        } else {
            self.text.get(span.clone()).unwrap_or_default()
        };
        match treatment {
            Treatment::Redact if is_string && self.is_time_of_publication(text) => Fate::Stays,
            Treatment::Redact => Fate::Goes,
            Treatment::RedactSpec if !is_string && matches!(text, "true" | "false") => Fate::Stays,
            Treatment::RedactSpec => match self.key() {
                Some(key) if is_string && !self.is_named() => self.fate_in_spec(key, text),
                _ => Fate::Goes,
            },
            Treatment::RedactCopies if is_string && may_be_copy(text) => Fate::Goes,
            Treatment::RedactCopies | Treatment::Keep => self.fate_by_key(text, is_string),
        }
    }

    /// What is to become of a string among references: it has to look like one, and its key must
    /// not name a secret.
    fn fate_in_spec(&self, key: &str, text: &str) -> Fate {
        let is_in_detail = self.is_in_connection_detail();
        let fate = match fate_of(key, self.key_around(), is_in_detail, text) {
            Fate::StaysIf(Condition::IsConnectionDetail) if !is_in_detail => Fate::Stays,
            fate => fate,
        };
        match (fate, self.fate_by_key(text, true)) {
            (Fate::Goes, _) | (_, Fate::Goes) => Fate::Goes,
            (Fate::Stays, by_key) => by_key,
            (fate, _) => fate,
        }
    }

    /// What is to become of a leaf about which only its key says something.
    fn fate_by_key(&self, text: &str, is_string: bool) -> Fate {
        if self.is_named() {
            return Fate::Goes;
        }
        let by_key = self.stack.last().is_some_and(|frame| frame.by_key);
        // None of these texts can be a secret.
        if !is_string || !by_key || matches!(text, "" | "true" | "false") {
            return Fate::Stays;
        }
        match self.role() {
            Some(Role::Secret) => Fate::Goes,
            Some(Role::SecretKey) => Fate::StaysIf(Condition::HasRemoteRef),
            Some(Role::Value) if self.rules.secret_keys => Fate::StaysIf(Condition::NameIsHarmless),
            _ => Fate::Stays,
        }
    }

    /// Whether this is when an XR's connection details were published, in its status.
    fn is_time_of_publication(&self, text: &str) -> bool {
        self.key() == Some("lastPublishedTime")
            && self.key_around() == Some("connectionDetails")
            && is_time_by_form(text)
    }

    /// Whether the text is a payload, not something inside of one.
    fn is_payload(&self) -> bool {
        self.strings_around == 0 && self.inside.is_none()
    }

    /// Whether this is the key of a composed or required resource, or of a schema.
    pub(super) fn is_name_of_resource(&self) -> bool {
        if !self.is_payload() {
            return false;
        }
        match self.stack.as_slice() {
            [root, _] => matches!(
                root.key(),
                Some("requiredResources" | "extraResources" | "requiredSchemas")
            ),
            [root, inner, _] => matches!(
                (root.key(), inner.key()),
                (Some("observed" | "desired"), Some("resources"))
                    | (
                        Some("requirements"),
                        Some("resources" | "extraResources" | "schemas")
                    )
            ),
            _ => false,
        }
    }

    /// Whether this is a member of a resource in the protocol's observed or desired state.
    fn is_in_state_of_protocol(&self) -> bool {
        let is_state = |frame: &Frame<'_>| matches!(frame.key(), Some("observed" | "desired"));
        self.is_payload()
            && match self.stack.as_slice() {
                [root, state, _] => is_state(root) && state.key() == Some("composite"),
                [root, state, _, _] => is_state(root) && state.key() == Some("resources"),
                _ => false,
            }
    }

    /// Whether this is a member of something in a list of connection details.
    fn is_in_connection_detail(&self) -> bool {
        let [.., around, list, _] = self.stack.as_slice() else {
            return false;
        };
        !list.is_object && around.role() == Some(Role::ConnectionDetails)
    }

    fn is_pointed_at(&self) -> bool {
        self.is_payload()
            && self.rules.pointers.iter().any(|Pointer(path)| {
                path.len() == self.stack.len()
                    && path.iter().zip(&self.stack).all(|(segment, frame)| {
                        segment == "*"
                            || frame.key().map_or_else(
                                || *segment == frame.index.to_string(),
                                |key| key == segment,
                            )
                    })
            })
    }

    /// The key of the member that is being read.
    fn key(&self) -> Option<&str> {
        self.stack.last().and_then(Frame::key)
    }

    fn role(&self) -> Option<Role> {
        self.stack.last().and_then(Frame::role)
    }

    fn is_named(&self) -> bool {
        let member = self.stack.last().and_then(|frame| frame.member.as_ref());
        member.is_some_and(|member| member.is_named)
    }

    /// The key of the object that we are in.
    fn key_around(&self) -> Option<&str> {
        let [.., around, _] = self.stack.as_slice() else {
            return None;
        };
        around.key()
    }
}

/// Whether an annotation of a Secret may be a copy of the Secret: JSON, YAML, or packed.
fn may_be_copy(text: &str) -> bool {
    text.len() > MAX_ANNOTATION || may_hold_manifest(text)
}
