//! What a failed call to the store means, and what to do about it.
//!
//! The stores answer in words of their own, which `object_store` hands on as text; this is the one
//! place that reads them. Invariant: only a failure that would come again for this object, and for
//! no other, is final. Whatever else is wrong (a bucket that is missing, a role that may not
//! write) somebody can put right while the spool holds what waits.

use std::{error::Error, fmt, io};

/// What is wrong, as far as the store tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    BucketMissing,
    AccessDenied,
    NotAuthenticated,
    WrongRegion,
    DiskFull,
    Unreachable,
    /// This object is too large, or its key is refused.
    ObjectRefused,
    Other,
}

impl Trouble {
    /// Whether trying the same again can help.
    pub fn is_transient(self) -> bool {
        self != Self::ObjectRefused
    }

    /// What a person can do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::BucketMissing => "create the bucket, or correct --store",
            Self::AccessDenied => {
                "allow s3:PutObject, s3:GetObject and s3:ListBucket (or your store's likes) on the \
                 prefix to the credentials in use"
            }
            Self::NotAuthenticated => {
                "check the credentials: AWS_*, GOOGLE_*, AZURE_* variables or workload identity"
            }
            Self::WrongRegion => "set AWS_REGION to the bucket's region",
            Self::DiskFull => "make room, or lower --retention or --retention-bytes",
            Self::Unreachable => {
                "check the endpoint (AWS_ENDPOINT_URL) and the network policy; plain http needs an \
                 endpoint that says http://"
            }
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
        out.write_str(match self.trouble {
            Trouble::BucketMissing => "the bucket does not exist",
            Trouble::AccessDenied => "the store denies access",
            Trouble::NotAuthenticated => "the store does not accept the credentials",
            Trouble::WrongRegion => "the bucket is in another region",
            Trouble::DiskFull => "the disk is full",
            Trouble::Unreachable => "the store can't be reached",
            Trouble::ObjectRefused => "the store refuses this object",
            Trouble::Other => "the store failed",
        })
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
    /// The store answers, and has no such object.
    pub fn is_not_found(&self) -> bool {
        let is_missing = matches!(self.source, object_store::Error::NotFound { .. });
        is_missing && self.trouble != Trouble::BucketMissing
    }

    /// The store's own words, on one line.
    pub fn detail(&self) -> String {
        self.source.to_string().replace(['\n', '\r'], " ")
    }
}

fn diagnose(error: &object_store::Error) -> Trouble {
    if let Some(trouble) = io_error_in(error).and_then(diagnose_io) {
        return trouble;
    }
    // Codes of S3 and its likes, then of Google Cloud Storage and Azure.
    let text = error.to_string();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&[
        "NoSuchBucket",
        "The specified bucket does not exist",
        "ContainerNotFound",
    ]) {
        return Trouble::BucketMissing;
    }
    if says(&[
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
    ]) {
        return Trouble::NotAuthenticated;
    }
    if says(&[
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "incorrectly configured region",
    ]) {
        return Trouble::WrongRegion;
    }
    if says(&[
        "EntityTooLarge",
        "KeyTooLong",
        "code: 413",
        "code: 414",
        "RequestBodyTooLarge",
    ]) {
        return Trouble::ObjectRefused;
    }
    if says(&[
        "AccessDenied",
        "AuthorizationPermissionMismatch",
        "storage.objects.list access",
    ]) {
        return Trouble::AccessDenied;
    }
    match error {
        object_store::Error::PermissionDenied { .. } => Trouble::AccessDenied,
        object_store::Error::Unauthenticated { .. } => Trouble::NotAuthenticated,
        object_store::Error::InvalidPath { .. } => Trouble::ObjectRefused,
        _ if says(&["error sending request", "timed out", "connection"]) => Trouble::Unreachable,
        _ => Trouble::Other,
    }
}

/// Whether the store does not know what was asked of it, rather than having failed at it.
pub(super) fn is_unknown_to_store(error: &object_store::Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported};

    // Some file systems have no hard links, which creating a file without replacing one takes.
    let has_no_links = io_error_in(error).is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
        )
    });
    matches!(error, NotImplemented { .. } | NotSupported { .. })
        || has_no_links
        || error.to_string().contains("NotImplemented")
}

fn io_error_in<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
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
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Trouble::DiskFull),
        io::ErrorKind::InvalidFilename | io::ErrorKind::FileTooLarge => {
            Some(Trouble::ObjectRefused)
        }
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::TimedOut => Some(Trouble::Unreachable),
        _ => None,
    }
}
