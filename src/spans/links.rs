//! Where a reconcile's payloads are found: as an object in the store, and as a page of the viewer.
//!
//! Invariant: an address is right or missing. What would have to be encoded has none, because
//! Grafana encodes it a second time; nor has what will never be in the store.

use crate::line::{ObjectRef, PayloadState};

/// Makes addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Links {
    /// Without a slash at its end; empty if there is none that works.
    viewer_url: String,
    store_uri: String,
}

impl Links {
    /// From the address at which people reach the viewer, and that of the bucket and prefix, such
    /// as `s3://bucket/prefix`. An empty one makes no addresses.
    pub fn new(viewer_url: &str, store_uri: &str) -> Self {
        let needs_encoding = |character: char| {
            character == '%' || character.is_whitespace() || character.is_control()
        };
        let viewer_url = if viewer_url.contains(needs_encoding) {
            ""
        } else {
            viewer_url.trim_end_matches('/')
        };
        Self {
            viewer_url: viewer_url.to_owned(),
            // NOTE: no more than one: `memory:///` has three.
            store_uri: store_uri.strip_suffix('/').unwrap_or(store_uri).to_owned(),
        }
    }

    /// The object in the store.
    pub(super) fn uri(&self, object: &ObjectRef) -> Option<String> {
        let exists = !self.store_uri.is_empty() && may_be_there(object);
        exists.then(|| format!("{}/{}", self.store_uri, object.key))
    }

    /// The object in the viewer.
    pub(super) fn object_url(&self, object: &ObjectRef) -> Option<String> {
        let exists =
            !self.viewer_url.is_empty() && may_be_there(object) && needs_no_encoding(&object.key);
        exists.then(|| format!("{}/open?key={}", self.viewer_url, object.key))
    }

    /// A payload in the viewer.
    pub(super) fn payload_url(&self, object: &ObjectRef, pointer: &str) -> Option<String> {
        let url = self.object_url(object)?;
        needs_no_encoding(pointer).then(|| format!("{url}&pointer={pointer}"))
    }
}

fn may_be_there(object: &ObjectRef) -> bool {
    !object.key.is_empty() && object.state != PayloadState::Dropped
}

fn needs_no_encoding(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-=/".contains(&byte);
    text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, state: PayloadState) -> ObjectRef {
        ObjectRef {
            key: key.to_owned(),
            state,
            redaction: None,
            bytes: 0,
        }
    }

    #[test]
    fn a_payload_is_found_in_the_viewer_and_in_the_store() {
        let links = Links::new("https://viewer.example.org/x/", "s3://bucket/prefix/");
        for state in [
            PayloadState::Stored,
            PayloadState::Unchanged,
            PayloadState::Queued,
        ] {
            let object = object("v1/a=b/c_d-e.json.zst", state);
            assert_eq!(
                links.payload_url(&object, "/steps/2/request").unwrap(),
                "https://viewer.example.org/x/open?key=v1/a=b/c_d-e.json.zst&pointer=/steps/2/request"
            );
            assert_eq!(
                links.object_url(&object).unwrap(),
                "https://viewer.example.org/x/open?key=v1/a=b/c_d-e.json.zst"
            );
            assert_eq!(
                links.uri(&object).unwrap(),
                "s3://bucket/prefix/v1/a=b/c_d-e.json.zst"
            );
        }
    }

    #[test]
    fn what_would_have_to_be_encoded_has_no_url() {
        let links = Links::new("http://localhost:8686", "file:///data");
        for odd in ["a b", "a%b", "a&b", "a?b", "a#b", "a+b", "é", "a\nb"] {
            assert_eq!(links.object_url(&object(odd, PayloadState::Stored)), None);
            let plain = object("plain", PayloadState::Stored);
            assert_eq!(links.payload_url(&plain, odd), None, "{odd}");
        }
        let links = Links::new("http://localhost/%7Euser", "file:///data");
        assert_eq!(links.object_url(&object("a", PayloadState::Stored)), None);
    }

    #[test]
    fn what_is_not_there_has_no_address() {
        let links = Links::new("http://localhost:8686", "file:///data");
        for nothing in [
            object("a", PayloadState::Dropped),
            object("", PayloadState::Stored),
        ] {
            assert_eq!(links.object_url(&nothing), None);
            assert_eq!(links.payload_url(&nothing, "/steps/0/request"), None);
            assert_eq!(links.uri(&nothing), None);
        }
    }

    #[test]
    fn neither_viewer_nor_store_is_needed() {
        let object = object("a", PayloadState::Stored);
        let links = Links::new("", "");
        assert_eq!(
            (links.object_url(&object), links.uri(&object)),
            (None, None)
        );
    }
}
