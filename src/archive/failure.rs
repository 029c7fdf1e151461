//! What a failed call to the store means, and what to do about it.
//!
//! The stores answer in words of their own, which `object_store` hands on as text; this is the one
//! place that reads them. Invariant: only a failure that would come again for this object, and for
//! no other, is final. Whatever else is wrong (a bucket that is missing, a role that may not
//! write) somebody can put right while the spool holds what waits.

use std::{error::Error, fmt, io};

use crate::disk::is_full;

/// What a store does not find when it is written to, other than the bucket: an upload in parts that
/// was given up meanwhile, or an object that was to be replaced.
const OTHERS_MISSING: [&str; 5] = [
    "NoSuchUpload",
    "NoSuchKey",
    "NoSuchVersion",
    "BlobNotFound",
    "InvalidBlockList",
];

/// What is wrong, as far as the store tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    BucketMissing,
    AccessDenied,
    /// The store does not accept the credentials.
    NotAuthenticated,
    /// There are no credentials to send.
    NoCredentials,
    WrongRegion,
    /// The store answers 4xx, for a reason that none of the others names.
    RequestRefused,
    /// A store on local disk has a symbolic link in this place.
    SymbolicLink,
    DiskFull,
    Unreachable,
    /// The store asks to be called less often.
    Throttled,
    /// This object is too large, or its key is refused.
    ObjectRefused,
    Other,
}

impl Trouble {
    /// Those that last until somebody changes something: the store answers, and refuses.
    pub const LASTING: [Self; 7] = [
        Self::BucketMissing,
        Self::AccessDenied,
        Self::NotAuthenticated,
        Self::NoCredentials,
        Self::WrongRegion,
        Self::RequestRefused,
        Self::SymbolicLink,
    ];

    /// Whether trying the same again can help.
    pub fn is_transient(self) -> bool {
        self != Self::ObjectRefused
    }

    /// Whether the store refuses writes, rather than being out of reach for a while. Waiting does not
    /// cure that; a person has to.
    pub fn is_lasting(self) -> bool {
        Self::LASTING.contains(&self)
    }

    /// The value of a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BucketMissing => "bucket_missing",
            Self::AccessDenied => "access_denied",
            Self::NotAuthenticated => "not_authenticated",
            Self::NoCredentials => "no_credentials",
            Self::WrongRegion => "wrong_region",
            Self::RequestRefused => "request_refused",
            Self::SymbolicLink => "symbolic_link",
            Self::DiskFull => "disk_full",
            Self::Unreachable => "unreachable",
            Self::Throttled => "throttled",
            Self::ObjectRefused => "object_refused",
            Self::Other => "other",
        }
    }

    /// What is wrong, in a few words.
    pub const fn what(self) -> &'static str {
        match self {
            Self::BucketMissing => "the bucket does not exist",
            Self::AccessDenied => "the store denies access",
            Self::NotAuthenticated => "the store does not accept the credentials",
            Self::NoCredentials => "no credentials for the store could be obtained",
            Self::WrongRegion => "the bucket is in another region",
            Self::RequestRefused => "the store refuses the request",
            Self::SymbolicLink => "the store holds a symbolic link here, which is not followed",
            Self::DiskFull => "the disk is full",
            Self::Unreachable => "the store can't be reached",
            Self::Throttled => "the store asks to be called less often",
            Self::ObjectRefused => "the store refuses this object",
            Self::Other => "the store failed",
        }
    }

    /// What a person can do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::BucketMissing => "create the bucket, or correct --store",
            Self::AccessDenied => {
                "allow the credentials in use s3:PutObject, s3:GetObject and s3:ListBucket (or the \
                 equivalent for your store) on the prefix; for file://, make the folder writable \
                 for the sidecar's user"
            }
            Self::NotAuthenticated => {
                "check the credentials (AWS_*, GOOGLE_*, AZURE_* variables or workload identity) and \
                 the clock: requests are signed with the time"
            }
            Self::NoCredentials => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the equivalent for your \
                 store), or give the pod's service account a workload identity"
            }
            Self::WrongRegion => "set AWS_REGION to the bucket's region",
            Self::RequestRefused => {
                "see what the store says, and check the bucket's policies: encryption, object \
                 lock, retention, required headers"
            }
            Self::SymbolicLink => {
                "replace the link with what it points to, or name its target with --store"
            }
            Self::DiskFull => "make room, or lower --retention or --retention-bytes",
            Self::Unreachable => {
                "check the endpoint (AWS_ENDPOINT_URL) and the network policy; plain http needs an \
                 endpoint that says http://"
            }
            Self::Throttled => "nothing, unless it lasts: then raise the store's request limit",
            Self::ObjectRefused => "nothing: this object can never be stored",
            Self::Other => "see the error",
        }
    }
}

/// A failed call to the store.
#[derive(Debug)]
pub struct StoreError {
    pub trouble: Trouble,
    source: object_store::Error,
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.trouble.what())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl From<object_store::Error> for StoreError {
    fn from(source: object_store::Error) -> Self {
        Self {
            trouble: diagnose(&source),
            source,
        }
    }
}

impl StoreError {
    /// Of a call that writes: there, what a store does not find can only be the bucket, unless it
    /// says that it is something else. A file that is gone was removed by somebody.
    pub(super) fn of_write(source: object_store::Error) -> Self {
        let mut error = Self::from(source);
        let text = error.source.to_string();
        let is_missing = matches!(error.source, object_store::Error::NotFound { .. });
        let is_other = code_of(&text).is_some_and(|code| OTHERS_MISSING.contains(&code));
        if is_missing && !is_other && error.trouble == Trouble::Other && status_of(&text).is_some()
        {
            error.trouble = Trouble::BucketMissing;
        }
        error
    }

    /// The store answers, and has no such object.
    pub fn is_not_found(&self) -> bool {
        let is_missing = matches!(self.source, object_store::Error::NotFound { .. });
        is_missing && self.trouble != Trouble::BucketMissing
    }

    /// The store answered that something is wrong with what it was asked for: with this object, or
    /// with the way in which the store is set up. Only others that pass can tell.
    pub fn is_refusal(&self) -> bool {
        let is_unknown = status_of(&self.source.to_string()) == Some(501);
        matches!(
            self.trouble,
            Trouble::ObjectRefused | Trouble::RequestRefused
        ) || is_unknown
    }

    /// Says what is wrong, and whether to wait or to act.
    pub fn log(&self) {
        let (detail, advice) = (self.detail(), self.trouble.advice());
        if self.trouble.is_lasting() {
            tracing::error!(
                error = %self, detail, advice,
                "the store refuses what is written to it, and will until that is put right; \
                 payloads wait on disk, as long as there is room"
            );
        } else {
            tracing::warn!(
                error = %self, detail, advice,
                "cannot write to the store at the moment; payloads wait on disk"
            );
        }
    }

    /// The store's own words, on one line.
    pub fn detail(&self) -> String {
        self.source.to_string().replace(['\n', '\r'], " ")
    }
}

fn diagnose(error: &object_store::Error) -> Trouble {
    if find_cause::<SymbolicLink>(error).is_some() {
        return Trouble::SymbolicLink;
    }
    if let Some(trouble) = find_cause(error).and_then(diagnose_io) {
        return trouble;
    }
    // NOTE: the text holds the object's key, and so what people call their things. No key has a `<`,
    // a blank or a `//`.
    let text = error.to_string();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let known = code_of(&text).and_then(diagnose_code);
    if let Some(trouble) = known {
        return trouble;
    }
    if says(&["The specified bucket does not exist"]) {
        return Trouble::BucketMissing;
    }
    if says(&["Server failed to authenticate"]) {
        return Trouble::NotAuthenticated;
    }
    if says(&["incorrectly configured region"]) {
        return Trouble::WrongRegion;
    }
    // Where a cloud's machines ask for the credentials of whoever runs on them.
    let has_no_identity = says(&["//169.254.", "//metadata.google.internal"]);
    match (error, status_of(&text)) {
        _ if has_no_identity => Trouble::NoCredentials,
        (object_store::Error::PermissionDenied { .. }, _) => Trouble::AccessDenied,
        (object_store::Error::Unauthenticated { .. }, _) => Trouble::NotAuthenticated,
        (object_store::Error::InvalidPath { .. }, _) | (_, Some(413 | 414)) => {
            Trouble::ObjectRefused
        }
        (_, Some(429)) => Trouble::Throttled,
        (_, Some(408)) => Trouble::Unreachable,
        // A key that is not there is an answer, not a refusal.
        (object_store::Error::NotFound { .. }, _) => Trouble::Other,
        (_, Some(400..=499)) => Trouble::RequestRefused,
        _ if says(&["error sending request", "timed out", "connection "]) => Trouble::Unreachable,
        _ => Trouble::Other,
    }
}

/// What the codes of the clouds mean, and of the stores that speak their protocols.
fn diagnose_code(code: &str) -> Option<Trouble> {
    Some(match code {
        "NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted" => Trouble::BucketMissing,
        "AccessDenied" | "AuthorizationPermissionMismatch" => Trouble::AccessDenied,
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "AuthenticationFailed"
        | "InvalidAuthenticationInfo"
        | "RequestTimeTooSkewed" => Trouble::NotAuthenticated,
        "PermanentRedirect" | "AuthorizationHeaderMalformed" => Trouble::WrongRegion,
        "EntityTooLarge" | "KeyTooLongError" | "RequestBodyTooLarge" => Trouble::ObjectRefused,
        "SlowDown" | "ServerBusy" | "TooManyRequests" => Trouble::Throttled,
        "RequestTimeout" => Trouble::Unreachable,
        // Another write is under way in the same place.
        "ConditionalRequestConflict" | "OperationAborted" => Trouble::Other,
        _ => return None,
    })
}

/// The code in the store's answer: `<Code>AccessDenied</Code>`.
fn code_of(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    Some(code)
}

/// The status that the store answered with. `object_store` has it in its text only.
fn status_of(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Whether the store does not know writes that fail if something is there, rather than having
/// failed at one.
pub(super) fn knows_no_conditions(error: &object_store::Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported};

    matches!(error, NotImplemented { .. } | NotSupported { .. })
        || code_of(&error.to_string()) == Some("NotImplemented")
}

/// Whether the store may refuse the attributes of an object rather than the object.
pub(super) fn may_be_about_attributes(error: &object_store::Error, is_conditional: bool) -> bool {
    let text = error.to_string();
    is_about_attributes(error)
        // Of a conditional write, it is the condition that the store does not know.
        || code_of(&text) == Some("NotImplemented") && !is_conditional
        || diagnose(error) == Trouble::RequestRefused && status_of(&text) == Some(400)
}

/// Whether the store says that it refuses the attributes of an object.
pub(super) fn is_about_attributes(error: &object_store::Error) -> bool {
    let codes = [
        "InvalidMetadata",
        "EmptyMetadataKey",
        "MetadataTooLarge",
        "InvalidHeaderValue",
        "UnsupportedHeader",
    ];
    code_of(&error.to_string()).is_some_and(|code| codes.contains(&code))
}

/// A symbolic link stands where an object, or one of its folders, should.
#[derive(Debug, thiserror::Error)]
#[error("{0} is a symbolic link, which is not followed")]
pub(super) struct SymbolicLink(pub(super) String);

/// The error of this type among an error and its causes.
pub(super) fn find_cause<'e, E: Error + 'static>(
    error: &'e (dyn Error + 'static),
) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn diagnose_io(error: &io::Error) -> Option<Trouble> {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some(Trouble::AccessDenied)
        }
        _ if is_full(error) => Some(Trouble::DiskFull),
        io::ErrorKind::InvalidFilename | io::ErrorKind::FileTooLarge => {
            Some(Trouble::ObjectRefused)
        }
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::TimedOut => Some(Trouble::Unreachable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `object_store` tells an answer with this status and code.
    fn answered(status: &str, code: &str) -> Trouble {
        // People may call an XR what they like.
        let key = "v1/reconciles/AccessDenied.NoSuchBucket/SlowDown/EntityTooLarge/NotImplemented";
        let text = format!(
            "Error performing PUT http://127.0.0.1:9000/payloads/{key} in 1.2ms - Server returned \
             non-2xx status code: {status}: <?xml version=\"1.0\"?>\n<Error><Code>{code}</Code>\
             <Key>{key}</Key></Error>"
        );
        let error = object_store::Error::Generic {
            store: "S3",
            source: text.into(),
        };
        assert_eq!(knows_no_conditions(&error), code == "NotImplemented");
        assert_eq!(is_about_attributes(&error), code == "InvalidMetadata");
        diagnose(&error)
    }

    #[test]
    fn answers_mean_what_their_code_says_whatever_the_object_is_called() {
        for (status, code, trouble) in [
            (
                "400 Bad Request",
                "InvalidMetadata",
                Trouble::RequestRefused,
            ),
            ("400 Bad Request", "EntityTooLarge", Trouble::ObjectRefused),
            ("400 Bad Request", "ExpiredToken", Trouble::NotAuthenticated),
            ("400 Bad Request", "RequestTimeout", Trouble::Unreachable),
            ("403 Forbidden", "AccessDenied", Trouble::AccessDenied),
            (
                "403 Forbidden",
                "RequestTimeTooSkewed",
                Trouble::NotAuthenticated,
            ),
            ("404 Not Found", "NoSuchBucket", Trouble::BucketMissing),
            (
                "409 Conflict",
                "ContainerBeingDeleted",
                Trouble::BucketMissing,
            ),
            (
                "412 Precondition Failed",
                "PreconditionFailed",
                Trouble::RequestRefused,
            ),
            ("413 Payload Too Large", "", Trouble::ObjectRefused),
            ("429 Too Many Requests", "", Trouble::Throttled),
            ("500 Internal Server Error", "InternalError", Trouble::Other),
            ("501 Not Implemented", "NotImplemented", Trouble::Other),
            ("503 Service Unavailable", "SlowDown", Trouble::Throttled),
            ("503 Service Unavailable", "", Trouble::Other),
        ] {
            assert_eq!(answered(status, code), trouble, "{status} {code}");
        }
    }

    #[test]
    fn what_is_not_found_by_a_write_is_the_bucket_unless_the_store_says_otherwise() {
        let missing = |source: Box<dyn Error + Send + Sync>| {
            let path = "v1/reconciles/x".to_owned();
            StoreError::of_write(object_store::Error::NotFound { path, source }).trouble
        };
        let answered = |code: &str| {
            missing(
                format!(
                    "Server returned non-2xx status code: 404 Not Found: \
                     <Error><Code>{code}</Code></Error>"
                )
                .into(),
            )
        };
        assert_eq!(answered("NoSuchBucket"), Trouble::BucketMissing);
        assert_eq!(answered("NoIdea"), Trouble::BucketMissing);
        assert_eq!(answered("NoSuchUpload"), Trouble::Other);
        assert_eq!(answered("NoSuchKey"), Trouble::Other);
        let gone = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(missing(Box::new(gone)), Trouble::Other);
    }

    #[test]
    fn each_trouble_has_a_label_and_advice() {
        for trouble in Trouble::LASTING {
            assert!(trouble.is_lasting() && trouble.is_transient());
            assert!(!trouble.as_str().is_empty() && !trouble.advice().is_empty());
        }
        assert!(!Trouble::Unreachable.is_lasting() && !Trouble::Throttled.is_lasting());
    }
}
