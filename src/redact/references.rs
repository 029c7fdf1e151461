//! Which values below `credentials`, `connectionDetails` or a key that the user named survive:
//! those that say where a secret is kept, and can't be the secret by their looks.
//!
//! Without them neither a `ProviderConfig` nor the input of function-patch-and-transform could be
//! read or replayed. Invariant: a value survives only if both its key and its form are those of a
//! reference.

use super::keys::{is_name, is_name_of_user, is_reference};

/// What is to become of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Stays,
    Goes,
    StaysIf(Condition),
}

/// What has to be true of the object that a value is a member of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Condition {
    /// It has a `remoteRef`.
    HasRemoteRef,
    /// It is an entry of connection details that says where its value comes from.
    IsConnectionDetail,
    /// It doesn't have a name that is the key of a secret.
    NameIsHarmless,
}

/// Longest name of anything in Kubernetes.
const MAX_NAME: usize = 253;
/// Longer than any word that an API has for a choice.
const MAX_WORD: usize = 40;

/// Choices in the `data` list of an `ExternalSecret`.
const CHOICES: [&str; 3] = ["conversionStrategy", "decodingStrategy", "metadataPolicy"];

/// Paths of fields, and keys of secrets, in an entry of connection details.
const PATHS: [&str; 5] = [
    "connectionSecretKey",
    "fieldPath",
    "fromConnectionSecretKey",
    "fromFieldPath",
    "toConnectionSecretKey",
];
/// Members of a reference besides its names.
const PARTS_OF_REFERENCES: [&str; 5] = ["fieldPath", "key", "property", "remoteKey", "version"];

/// Members of an entry of connection details that say where its value comes from.
const SOURCES: [&str; 6] = [
    "fieldPath",
    "fromConnectionSecretKey",
    "fromFieldPath",
    "toConnectionSecretKey",
    "type",
    "value",
];

/// Whether an object with this key is an entry of connection details, not just something in a list.
pub(super) fn is_source(key: &str) -> bool {
    SOURCES.contains(&key)
}

/// What is to become of a string, by its key, the key of the object it is in, whether that is an
/// entry of connection details, and its text.
pub(super) fn fate_of(key: &str, around: Option<&str>, is_in_detail: bool, text: &str) -> Fate {
    let stays_if = |stays: bool| if stays { Fate::Stays } else { Fate::Goes };
    let is_in_reference = around.is_some_and(is_reference);
    match key {
        "name" if is_name_by_form(text) => Fate::StaysIf(Condition::IsConnectionDetail),
        "secretKey" if is_name_by_form(text) => Fate::StaysIf(Condition::HasRemoteRef),
        "kind" | "source" | "type" => stays_if(is_word_by_form(text)),
        "apiVersion" => stays_if(is_version_by_form(text)),
        "path" => stays_if(around == Some("fs") && is_path_by_form(text)),
        _ if is_in_detail && PATHS.contains(&key) => stays_if(is_path_by_form(text)),
        _ if PARTS_OF_REFERENCES.contains(&key) => {
            stays_if(is_in_reference && is_path_by_form(text))
        }
        _ if CHOICES.contains(&key) => stays_if(is_word_by_form(text)),
        _ => {
            let is_name = is_name(key) && !is_name_of_user(key);
            stays_if((is_name || is_reference(key)) && is_name_by_form(text))
        }
    }
}

/// Whether a text may be a version of an API, such as `v1` or `pkg.crossplane.io/v1beta1`.
fn is_version_by_form(text: &str) -> bool {
    let (group, version) = text.rsplit_once('/').unwrap_or(("", text));
    let is_of_group = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.';
    let digits = |text: &str| {
        text.trim_start_matches(|digit: char| digit.is_ascii_digit())
            .len()
    };
    let is_version = version.strip_prefix('v').is_some_and(|version| {
        let rest = version
            .get(version.len() - digits(version)..)
            .unwrap_or_default();
        let stage = rest
            .strip_prefix("alpha")
            .or_else(|| rest.strip_prefix("beta"));
        let has_number = rest.len() < version.len();
        has_number && (rest.is_empty() || stage.is_some_and(|number| digits(number) == 0))
    });
    is_version
        && text.len() <= MAX_NAME
        && group.bytes().all(|byte| is_of_group(byte) || byte == b'-')
}

/// Whether a text may be a choice of an API, such as `InjectedIdentity`.
fn is_word_by_form(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.len() <= MAX_WORD
        && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether a text may name something in Kubernetes or a key of a Secret.
fn is_name_by_form(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Whether a text may be the path of a field, of a file or of a secret in a vault.
fn is_path_by_form(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:[]".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Whether a text is a point in time, such as `2026-11-16T04:36:46Z`.
pub(super) fn is_time_by_form(text: &str) -> bool {
    let form = b"0000-00-00T00:00:00";
    let (head, zone) = text
        .as_bytes()
        .split_at_checked(form.len())
        .unwrap_or_default();
    let fits = head
        .iter()
        .zip(form)
        .all(|(byte, expected)| match expected {
            b'0' => byte.is_ascii_digit(),
            _ => byte == expected,
        });
    let is_of_zone = |byte: &u8| byte.is_ascii_digit() || b".:+-Z".contains(byte);
    head.len() == form.len() && fits && zone.len() <= 16 && zone.iter().all(is_of_zone)
}
