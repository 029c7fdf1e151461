//! Which keys name a secret, and which only say where one is kept.
//!
//! Invariant: a key that holds a reference never counts as a secret, whatever else is in it:
//! without references a payload can be neither understood nor replayed.

/// Last words of keys that hold a reference.
const REFERENCES: [&str; 6] = [
    "ref",
    "refs",
    "reference",
    "references",
    "selector",
    "selectors",
];

/// Ends of keys that hold a name, also where no new word begins: `secretname`.
const NAMES: [&str; 4] = ["name", "names", "namespace", "namespaces"];

/// Last words of keys that only describe a secret: `tokenUrl`, `passwordPolicy`, `secretType`.
pub const PROPERTIES: [&str; 25] = [
    "algorithm",
    "arn",
    "audience",
    "audiences",
    "backend",
    "class",
    "duration",
    "endpoint",
    "engine",
    "format",
    "issuer",
    "length",
    "mode",
    "path",
    "policy",
    "provider",
    "seconds",
    "store",
    "ttl",
    "type",
    "types",
    "uri",
    "url",
    "version",
    "versions",
];

/// Parts of keys that hold the name of a Secret or of a key in one, by convention, if nothing follows
/// but one of [`ENDS_OF_CONVENTIONS`].
const CONVENTIONS: [&[&str]; 3] = [
    &["existing", "secret"],
    &["image", "pull", "secret"],
    &["connection", "secret", "key"],
];

/// Ends of these keys, also where no new word begins: `existingSecretPasswordKey`, and not
/// `existingSecretPassword`.
const ENDS_OF_CONVENTIONS: [&str; 2] = ["key", "keys"];

/// Keys below which nothing is a secret by its key alone.
const KEYS_OF_REFERENCES: [&str; 3] = ["labels", "managedFields", "matchLabels"];

/// Whether the value of this key is a secret, if it is a string.
pub(super) fn names_secret(key: &str) -> bool {
    let key = behind_domain(key);
    has_secret_word(key)
        && !names_reference(key)
        && !PROPERTIES.iter().any(|word| ends_with_word(key, word))
        && !is_convention(key)
}

/// A key without the domain that keys of annotations begin with, which says who reads them.
fn behind_domain(key: &str) -> &str {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    match key.split_once('/') {
        Some((domain, rest)) if domain.contains('.') && domain.bytes().all(is_allowed) => rest,
        _ => key,
    }
}

/// Whether a word that stands for a secret is in a key, in any case.
fn has_secret_word(key: &str) -> bool {
    let key = key.as_bytes();
    (0..key.len()).any(|at| {
        let starts_with = |words| starts_with_words(key.get(at..).unwrap_or_default(), words);
        match key.get(at).map(u8::to_ascii_lowercase) {
            Some(b'a') => starts_with(&["api", "key"]),
            Some(b'c') => starts_with(&["connection", "string"]),
            Some(b'k') => starts_with(&["kubeconfig"]),
            Some(b'p') => {
                starts_with(&["password"])
                    || starts_with(&["passwd"])
                    || starts_with(&["passphrase"])
                    || starts_with(&["private", "key"])
            }
            Some(b's') => starts_with(&["secret"]),
            Some(b't') => starts_with(&["token"]),
            _ => false,
        }
    })
}

/// Whether this key holds a reference or a name.
pub(super) fn names_reference(key: &str) -> bool {
    is_reference(key) || is_name(key)
}

/// Whether this key holds a reference: `secretRef`, `resourceRefs`, `podSelector`.
pub(super) fn is_reference(key: &str) -> bool {
    // NOTE: asked about every key, so most are turned away by their last letters.
    let [.., last_but_one, last] = key.as_bytes() else {
        return false;
    };
    let ending = [last_but_one, last].map(u8::to_ascii_lowercase);
    matches!(&ending, b"ef" | b"fs" | b"ce" | b"es" | b"or" | b"rs")
        && REFERENCES.iter().any(|word| ends_with_word(key, word))
}

/// Whether this key holds a name: `secretName`, `namespace`.
pub(super) fn is_name(key: &str) -> bool {
    NAMES.iter().any(|word| tail(key, word).is_some())
}

/// Whether this key holds the name of a user, which isn't that of anything in Kubernetes.
pub(super) fn is_name_of_user(key: &str) -> bool {
    let key = key.as_bytes();
    let (before, name) = key.split_at(key.len().saturating_sub(4));
    let before = match before.split_last() {
        Some((separator, before)) if is_separator(*separator) => before,
        _ => before,
    };
    let user = before.get(before.len().saturating_sub(4)..);
    name.eq_ignore_ascii_case(b"name")
        && user.is_some_and(|user| user.eq_ignore_ascii_case(b"user"))
}

/// Whether nothing below this key is a secret by its key alone.
pub(super) fn holds_references(key: &str) -> bool {
    is_reference(key) || KEYS_OF_REFERENCES.contains(&key)
}

/// Whether a key ends with a word: `secretRef`, `secret_ref`, `ref`, and not `href`.
fn ends_with_word(key: &str, word: &str) -> bool {
    tail(key, word).is_some_and(|(before, tail)| {
        let begins_in_upper = tail.starts_with(|first: char| first.is_ascii_uppercase());
        let is_apart = before.is_none_or(|before| !before.is_ascii_alphanumeric());
        begins_in_upper || is_apart
    })
}

/// The end of a key, if it is this word in any case, and the byte before it.
fn tail<'k>(key: &'k str, word: &str) -> Option<(Option<u8>, &'k str)> {
    // NOTE: most words are told apart by their last letters.
    let ends_alike = |one: &u8, other: &u8| one.eq_ignore_ascii_case(other);
    if !ends_alike(key.as_bytes().last()?, word.as_bytes().last()?) {
        return None;
    }
    let (before, tail) = key.split_at_checked(key.len().checked_sub(word.len())?)?;
    tail.eq_ignore_ascii_case(word)
        .then(|| (before.bytes().last(), tail))
}

/// Whether a key holds the name of a Secret, or of a key in one, by convention.
fn is_convention(key: &str) -> bool {
    let bytes = key.as_bytes();
    let names_key = || {
        ENDS_OF_CONVENTIONS
            .iter()
            .any(|word| tail(key, word).is_some())
    };
    (0..bytes.len()).any(|at| {
        let rest = bytes.get(at..).unwrap_or_default();
        let mut behind = CONVENTIONS
            .iter()
            .filter_map(|words| behind_words(rest, words));
        behind.any(|behind| matches!(behind, [] | [b's' | b'S']) || names_key())
    })
}

/// Whether a key begins with words, in any case, with at most one separator between two of them.
fn starts_with_words(key: &[u8], words: &[&str]) -> bool {
    behind_words(key, words).is_some()
}

/// What follows the words that a key begins with.
fn behind_words<'k>(key: &'k [u8], words: &[&str]) -> Option<&'k [u8]> {
    let [word, others @ ..] = words else {
        return Some(key);
    };
    let (head, rest) = key.split_at_checked(word.len())?;
    if !head.eq_ignore_ascii_case(word.as_bytes()) {
        return None;
    }
    behind_words(rest, others).or_else(|| match rest {
        [first, rest @ ..] if is_separator(*first) => behind_words(rest, others),
        _ => None,
    })
}

/// Whether this byte may separate the words of a key.
pub(super) fn is_separator(byte: u8) -> bool {
    matches!(byte, b'-' | b'_' | b'.' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_secrets_are_known_in_any_case_and_position() {
        for key in [
            "password",
            "PASSWORD",
            "masterPassword",
            "admin-password",
            "passwordHash",
            "htpasswd",
            "tOkEn",
            "accessToken",
            "clientSecret",
            "secretKey",
            "AWS_SECRET_ACCESS_KEY",
            "apiKey",
            "api_key",
            "API-KEY",
            "my.api.key",
            "privateKey",
            "tls.private_key",
            "sshPassphrase",
            "connectionString",
            "kubeconfig",
            "example.org/token",
            "secret/foo",
            "password/prod",
            "app/token/",
            "/token/x",
            "imagePullSecretPassword",
            "existingSecretToken",
            "existing_secret_password",
            "connectionSecretKeyPassword",
        ] {
            assert!(names_secret(key), "{key}");
        }
    }

    #[test]
    fn references_and_descriptions_are_no_secrets() {
        for key in [
            "secretName",
            "secretname",
            "secretNamespace",
            "secretRef",
            "secret_ref",
            "secretRefs",
            "passwordSecretRef",
            "writeConnectionSecretToRef",
            "writeConnectionSecretToReference",
            "connectionSecretKey",
            "fromConnectionSecretKey",
            "existingSecret",
            "existingSecretPasswordKey",
            "existing-secret-password-keys",
            "EXISTINGSECRETKEY",
            "existingSecretNamespace",
            "existingSecretTokenRef",
            "imagePullSecret",
            "imagePullSecrets",
            "connectionSecretKeys",
            "tokenUrl",
            "token_type",
            "passwordPolicy",
            "tokenExpirationSeconds",
            "secrets.example.org/owner",
            "token.example.org/a/b",
            "secret/name",
            "key",
            "username",
        ] {
            assert!(!names_secret(key), "{key}");
        }
    }

    #[test]
    fn a_reference_is_a_word_of_its_own() {
        assert!(is_reference("ref") && is_reference("secretRef") && is_reference("key-refs"));
        assert!(!is_reference("href") && !is_reference("tokenpref"));
    }
}
