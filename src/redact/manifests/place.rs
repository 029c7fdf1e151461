//! What a value in a manifest is by its key and the keys around it, as in the JSON of a payload.

use super::lines::{behind_properties, is_action_opening, quote_of, unquoted};
use crate::redact::{
    Rules,
    frames::{LAST_APPLIED, is_named, is_secret_type},
    keys::{holds_references, names_secret},
    references::{Condition, Fate, fate_of, is_source, is_time_by_form},
    treatment::MAX_ANNOTATION,
};

/// What is to happen to the values below a point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Treatment {
    Keep,
    /// Everything goes but references.
    References,
    /// As [`Treatment::References`] in a list, as [`Treatment::All`] in a mapping.
    ConnectionDetails,
    All,
}

/// Where a mapping, a list or a scalar is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'t> {
    /// Keys count here.
    by_key: bool,
    treatment: Treatment,
    in_annotations: bool,
    in_connection_detail: bool,
    /// The key of the mapping that it is in.
    around: Option<&'t str>,
}

/// What the members of a mapping say of it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "any of them may be true at the same time"
)]
pub(super) struct Says {
    kind: bool,
    secret: bool,
    secret_type: bool,
    secret_name: bool,
    remote_ref: bool,
    connection_detail: bool,
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// `data` of something that may turn out to be a Secret.
    Data,
    /// `data` of a Secret.
    SecretData,
    /// It goes if a mapping around it is a Secret.
    Copy,
    /// It goes if the text is a manifest.
    ByKey,
    /// As [`What::ByKey`], by what stands beside it.
    If(Condition),
    /// It stays.
    Nothing,
}

/// What stands in the place of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// Nothing, or not on this line.
    Nothing,
    Container,
    Alias,
    /// By the action of a template, if only in part.
    Computed,
    Bool,
    Number,
    Text,
}

impl<'t> Place<'t> {
    /// The top of a document.
    pub(super) const TOP: Self = Self {
        by_key: true,
        treatment: Treatment::Keep,
        in_annotations: false,
        in_connection_detail: false,
        around: None,
    };

    /// The place of a value under this key.
    pub(super) fn below(self, key: &'t str, rules: &Rules) -> Self {
        let treatment = match (self.treatment, key) {
            (Treatment::All, _) => Treatment::All,
            (_, "connectionDetails") => Treatment::ConnectionDetails,
            (_, "credentials") => Treatment::References,
            (Treatment::Keep, _) if self.by_key && is_named(key, rules) => Treatment::References,
            (treatment, _) => treatment,
        };
        Self {
            by_key: self.by_key && !holds_references(key),
            treatment,
            in_annotations: key == "annotations",
            in_connection_detail: false,
            around: Some(key),
        }
    }

    /// The place of the members of a mapping that is here.
    pub(super) fn of_members(self, is_item: bool) -> Self {
        let is_detail = self.treatment == Treatment::ConnectionDetails;
        Self {
            treatment: match self.treatment {
                Treatment::ConnectionDetails if is_item => Treatment::References,
                Treatment::ConnectionDetails => Treatment::All,
                treatment => treatment,
            },
            in_connection_detail: is_detail && is_item,
            around: self.around.filter(|_| !is_item),
            ..self
        }
    }

    /// What becomes of a scalar in a list that is here.
    pub(super) fn judge_item(self, written: Written) -> What {
        match (self.treatment, written) {
            (_, Written::Nothing | Written::Container | Written::Computed)
            | (Treatment::Keep, _)
            | (Treatment::References | Treatment::ConnectionDetails, Written::Bool) => {
                What::Nothing
            }
            _ => What::ByKey,
        }
    }

    /// What becomes of a scalar under this key in a mapping that is here.
    pub(super) fn judge(self, key: &str, value: &str, written: Written, rules: &Rules) -> What {
        if matches!(
            written,
            Written::Nothing | Written::Container | Written::Computed
        ) {
            return What::Nothing;
        }
        let is_named = self.by_key && is_named(key, rules);
        let text = unquoted(behind_properties(value));
        let is_text = matches!(written, Written::Text | Written::Alias);
        let is_secret = is_text && self.by_key && rules.secret_keys && names_secret(key);
        if key == "secretKey" && is_secret && !is_named {
            return match self.in_treatment(key, text, written) {
                What::Nothing => What::If(Condition::HasRemoteRef),
                what => what,
            };
        }
        if is_secret || (is_named && written != Written::Bool) {
            return What::ByKey;
        }
        match self.in_treatment(key, text, written) {
            What::Nothing if self.in_annotations && is_text && may_be_copy(key, value) => {
                What::Copy
            }
            What::Nothing if key == "value" && is_text && self.by_key && rules.secret_keys => {
                What::If(Condition::NameIsHarmless)
            }
            what => what,
        }
    }

    /// What becomes of a scalar by the keys around it.
    fn in_treatment(self, key: &str, text: &str, written: Written) -> What {
        let treatment = match key {
            "connectionDetails" => Treatment::All,
            "credentials" => self.treatment.max_with_references(),
            _ => self.treatment,
        };
        match treatment {
            Treatment::Keep => What::Nothing,
            Treatment::All | Treatment::ConnectionDetails => {
                let is_time = key == "lastPublishedTime" && is_time_by_form(text);
                let is_published = is_time && self.around == Some("connectionDetails");
                if is_published {
                    What::Nothing
                } else {
                    What::ByKey
                }
            }
            Treatment::References => match written {
                Written::Bool => What::Nothing,
                Written::Text => match fate_of(key, self.around, self.in_connection_detail, text) {
                    Fate::Goes => What::ByKey,
                    Fate::StaysIf(Condition::IsConnectionDetail) if !self.in_connection_detail => {
                        What::Nothing
                    }
                    Fate::StaysIf(condition) => What::If(condition),
                    Fate::Stays => What::Nothing,
                },
                _ => What::ByKey,
            },
        }
    }
}

impl Treatment {
    fn max_with_references(self) -> Self {
        if self == Self::Keep {
            Self::References
        } else {
            self
        }
    }
}

impl Says {
    /// Takes in a member.
    pub(super) fn listen(&mut self, key: &str, value: &str, rules: &Rules) {
        let text = unquoted(behind_properties(value));
        match key {
            "kind" => {
                self.kind |= !text.trim().is_empty();
                self.secret |= text.contains("Secret");
            }
            "type" => self.secret_type |= is_secret_type(text),
            "name" | "key" => self.secret_name |= rules.secret_keys && names_secret(text),
            "remoteRef" => self.remote_ref = true,
            _ => {}
        }
        self.connection_detail |= is_source(key);
    }

    /// Whether the mapping is a Secret, or something like it.
    pub(super) fn is_secret(self) -> bool {
        self.secret || (self.secret_type && !self.kind)
    }

    /// What becomes of a value, now that its mapping has ended.
    pub(super) fn decide(self, condition: Condition) -> What {
        let stays = match condition {
            Condition::HasRemoteRef => self.remote_ref,
            Condition::IsConnectionDetail => self.connection_detail,
            Condition::NameIsHarmless => !self.secret_name,
        };
        if stays { What::Nothing } else { What::ByKey }
    }
}

impl Written {
    /// What a value is, by its form.
    pub(super) fn of(value: &str) -> Self {
        let value = behind_properties(value);
        let first = value.as_bytes().first();
        let may_be_number = |first: &u8| first.is_ascii_digit() || b"+-.".contains(first);
        match first {
            None => Self::Nothing,
            Some(b'{' | b'[') if !is_action_opening(value) => Self::Container,
            Some(_) if value.contains("{{") => Self::Computed,
            Some(b'*') => Self::Alias,
            _ if matches!(value, "true" | "false") => Self::Bool,
            _ if matches!(value, "\"\"" | "''" | "null" | "~") => Self::Nothing,
            Some(first) if may_be_number(first) && value.parse::<f64>().is_ok() => Self::Number,
            _ if matches!(unquoted(value), "true" | "false") => Self::Bool,
            Some(_) => Self::Text,
        }
    }
}

/// Whether an annotation of a Secret may be a copy of the Secret: JSON, YAML, or packed.
fn may_be_copy(key: &str, value: &str) -> bool {
    let is_of_several_lines =
        value.starts_with(['|', '>']) || (quote_of(value).is_some() && unquoted(value) == value);
    key.as_bytes() == LAST_APPLIED
        || is_of_several_lines
        || value.len() > MAX_ANNOTATION
        || value.contains(['{', '\\'])
}
