//! The objects and lists that the scan is in, what their members mean, and what they turned out
//! to be.

use std::borrow::Cow;

use super::{
    Rules,
    keys::{holds_references, names_reference, names_secret},
};

/// What is to happen to the values below a point; of two that apply, the greater one counts.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Treatment {
    Keep,
    /// Annotations of a Secret: whatever may be a copy of it goes.
    RedactCopies,
    /// Everything goes but references.
    RedactSpec,
    Redact,
}

/// What a key means by its name alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Nothing: also the name of a composed or required resource.
    Plain,
    Annotations,
    ConnectionDetails,
    Credentials,
    Data,
    Kind,
    LastApplied,
    /// `name` or `key` of a pair with a `value`.
    Name,
    /// Nothing below is a secret by its key.
    References,
    RemoteRef,
    /// A string under this key is a secret.
    Secret,
    /// As [`Role::Secret`], unless it names the key of a remote secret.
    SecretKey,
    StringData,
    Type,
    Value,
}

/// A member of an object, once its key has gone by.
#[derive(Debug)]
pub(super) struct Member<'t> {
    pub(super) key: Cow<'t, str>,
    pub(super) role: Role,
    /// The user wants it redacted.
    pub(super) is_named: bool,
}

/// What an object turned out to be, by the members that have gone by.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "any of them may be true at the same time"
)]
pub(super) struct Says {
    pub(super) kind: bool,
    /// Its kind is that of a Secret, or of something like it.
    pub(super) secret: bool,
    pub(super) list: bool,
    /// It has the type of a Secret.
    pub(super) secret_type: bool,
    /// It has a name that is the key of a secret.
    pub(super) secret_name: bool,
    pub(super) remote_ref: bool,
    /// It is an entry of connection details that says where its value comes from.
    pub(super) connection_detail: bool,
}

/// A value that goes if an object around it is a Secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) start: usize,
    pub(super) end: usize,
    /// How many objects and lists are around it.
    pub(super) depth: usize,
    pub(super) treatment: Treatment,
    /// Keys count in it.
    pub(super) by_key: bool,
    /// It is in one of the items of a list, one that doesn't say what it is.
    pub(super) is_in_kindless_item: bool,
}

#[derive(Debug)]
pub(super) struct Frame<'t> {
    pub(super) start: usize,
    pub(super) is_object: bool,
    pub(super) treatment: Treatment,
    /// Keys count here.
    pub(super) by_key: bool,
    /// The member being read.
    pub(super) member: Option<Member<'t>>,
    /// The element being read.
    pub(super) index: usize,
    pub(super) says: Says,
    /// Where its undecided values begin among all of them.
    pub(super) undecided: usize,
    /// Where the blocks in it begin among all of them.
    pub(super) candidates: usize,
}

impl Frame<'_> {
    pub(super) fn key(&self) -> Option<&str> {
        self.member.as_ref().map(|member| member.key.as_ref())
    }

    pub(super) fn role(&self) -> Option<Role> {
        self.member.as_ref().map(|member| member.role)
    }
}

pub(super) const LAST_APPLIED: &[u8] = b"kubectl.kubernetes.io/last-applied-configuration";

/// Types of Secrets that Kubernetes and Crossplane define; one without a kind is known by it.
pub(super) const SECRET_TYPES: [&str; 7] = [
    "Opaque",
    "connection.crossplane.io/v1alpha1",
    "kubernetes.io/basic-auth",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/service-account-token",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/tls",
];

pub(super) fn is_secret_type(text: &str) -> bool {
    SECRET_TYPES.contains(&text)
}

/// What a key means; whether it may name a secret is known before.
pub(super) fn role_of(key: &str, may_name_secret: bool, rules: &Rules) -> Role {
    // NOTE: asked about every key. Bytes are compared faster than strings here.
    match key.as_bytes() {
        b"annotations" => Role::Annotations,
        b"connectionDetails" => Role::ConnectionDetails,
        b"credentials" => Role::Credentials,
        b"data" => Role::Data,
        b"kind" => Role::Kind,
        b"key" | b"name" => Role::Name,
        b"remoteRef" => Role::RemoteRef,
        b"secretKey" if rules.secret_keys => Role::SecretKey,
        b"stringData" => Role::StringData,
        b"type" => Role::Type,
        b"value" => Role::Value,
        LAST_APPLIED => Role::LastApplied,
        _ if may_name_secret && rules.secret_keys && names_secret(key) => Role::Secret,
        _ if holds_references(key) => Role::References,
        _ => Role::Plain,
    }
}

/// Whether the user wants what is under this key redacted.
pub(super) fn is_named(key: &str, rules: &Rules) -> bool {
    !rules.keys.is_empty() && rules.keys.is_match(key) && !names_reference(key)
}
