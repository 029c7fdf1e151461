//! A stored reconcile, opened: what each step was asked and what it answered.
//!
//! Invariant: opening it parses no payload; a payload is the very text that stands in the object.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{reconcile::Subject, record::RecordKind};

/// The text of an object.
#[derive(Clone, Debug)]
pub struct StoredDocument(String);

/// Why an object can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the object is no text")]
    NotText(#[from] std::string::FromUtf8Error),
    #[error("the object is no document of a reconcile")]
    NotADocument(#[from] serde_json::Error),
    #[error("the object is not JSON, or ends too early")]
    Malformed,
    #[error("the object is a document of version {0}, which this program does not know")]
    Version(u32),
}

/// A reconcile, as it is stored.
#[derive(Debug, Deserialize)]
pub struct Document<'d> {
    pub v: u32,
    #[serde(borrow)]
    pub trace_id: Cow<'d, str>,
    pub subject: Subject,
    #[serde(borrow)]
    pub steps: Vec<DocumentStep<'d>>,
}

/// A function call, as it is stored.
#[derive(Debug, Deserialize)]
pub struct DocumentStep<'d> {
    #[serde(borrow)]
    pub name: Cow<'d, str>,
    #[serde(borrow)]
    pub function: Cow<'d, str>,
    #[serde(borrow)]
    request: Option<&'d RawValue>,
    #[serde(borrow)]
    request_text: Option<Cow<'d, str>>,
    #[serde(borrow)]
    request_base64: Option<Cow<'d, str>>,
    #[serde(borrow)]
    response: Option<&'d RawValue>,
    #[serde(borrow)]
    response_text: Option<Cow<'d, str>>,
    #[serde(borrow)]
    response_base64: Option<Cow<'d, str>>,
}

/// What was asked or answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Payload<'d> {
    Missing,
    /// As it came, but for redacted values.
    Json(&'d str),
    Text(&'d str),
    /// It is not even text.
    Base64(&'d str),
}

impl StoredDocument {
    pub fn new(bytes: Vec<u8>) -> Result<Self, OpenError> {
        Ok(Self(String::from_utf8(bytes)?))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn open(&self) -> Result<Document<'_>, OpenError> {
        let document: Document<'_> = serde_json::from_str(&self.0)?;
        if document.v != 1 {
            return Err(OpenError::Version(document.v));
        }
        Ok(document)
    }
}

impl<'d> Document<'d> {
    /// The payload at a pointer as lines and spans have it, such as `/steps/2/request`.
    pub fn payload_at<'p>(&'p self, pointer: &str) -> Payload<'p>
    where
        'd: 'p,
    {
        let Some((place, member)) = pointer
            .strip_prefix("/steps/")
            .and_then(|rest| rest.split_once('/'))
        else {
            return Payload::Missing;
        };
        let step = place
            .parse()
            .ok()
            .and_then(|place: usize| self.steps.get(place));
        let kind = match member.split('_').next() {
            Some("request") => RecordKind::Request,
            Some("response") => RecordKind::Response,
            _ => return Payload::Missing,
        };
        step.map_or(Payload::Missing, |step| step.payload(kind))
    }
}

impl DocumentStep<'_> {
    pub fn payload(&self, kind: RecordKind) -> Payload<'_> {
        let (json, text, base64) = match kind {
            RecordKind::Request => (self.request, &self.request_text, &self.request_base64),
            RecordKind::Response => (self.response, &self.response_text, &self.response_base64),
        };
        match (json, text, base64) {
            (Some(json), _, _) => Payload::Json(json.get()),
            (_, Some(text), _) => Payload::Text(text),
            (_, _, Some(base64)) => Payload::Base64(base64),
            _ => Payload::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_found_in_every_form() {
        let text = r#"{"v":1,"trace_id":"t","subject":{"type":"composite","api_version":"","kind":"","namespace":"",
            "name":"","uid":"","composition":""},"steps":[
            {"index":0,"name":"a","function":"f","request": {"x" : 1},"response":null},
            {"index":1,"name":"b","function":"g","request_text":"hé","response_base64":"/w=="}]}"#;
        let stored = StoredDocument::new(text.into()).unwrap();
        let document = stored.open().unwrap();
        let at = |pointer| document.payload_at(pointer);
        assert_eq!(at("/steps/0/request"), Payload::Json(r#"{"x" : 1}"#));
        assert_eq!(at("/steps/0/response"), Payload::Missing);
        assert_eq!(at("/steps/1/request_text"), Payload::Text("hé"));
        assert_eq!(at("/steps/1/response_base64"), Payload::Base64("/w=="));
        for odd in [
            "",
            "/steps/2/request",
            "/steps/0",
            "/steps/x/request",
            "/steps/0/other",
        ] {
            assert_eq!(at(odd), Payload::Missing, "{odd}");
        }
    }

    #[test]
    fn what_is_no_document_is_told_apart() {
        let open = |text: &str| StoredDocument::new(text.into()).unwrap().open().map(drop);
        assert!(matches!(open("[]"), Err(OpenError::NotADocument(_))));
        let other = r#"{"v":2,"trace_id":"t","subject":{"type":"composite","api_version":"","kind":"","namespace":"",
            "name":"","uid":"","composition":""},"steps":[]}"#;
        assert!(matches!(open(other), Err(OpenError::Version(2))));
        assert!(matches!(
            StoredDocument::new(vec![0xFF]),
            Err(OpenError::NotText(_))
        ));
    }
}
