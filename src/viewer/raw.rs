//! `/raw`: a payload, or a part of it, as it is stored.

use std::{borrow::Cow, sync::Arc};

use axum::{
    extract::{RawQuery, State},
    http::{
        HeaderValue,
        header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{
    Viewer,
    address::Params,
    failure::Failure,
    open::{absence, split_pointer},
};
use crate::{
    answers::{Payload, PayloadsError},
    archive::Key,
    json::Json,
    redact::REDACTED,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let params = Params::parse(query.as_deref());
    let key = params.text("key").unwrap_or_default();
    let pointer = params.text("pointer").unwrap_or_default();
    let is_call = params.text("as") == Some("call");
    let parsed = Key::parse(key).ok_or_else(|| PayloadsError::NotAKey(key.to_owned()))?;
    let _desk = viewer.take_desk().await;
    let stored = match viewer.answers.document(key).await {
        Ok(stored) => stored,
        Err(error) => return Err(absence(error, viewer.line_of(&parsed, None).await)),
    };
    let (content_type, body) = if pointer.is_empty() {
        (JSON, stored.text().as_bytes().to_vec())
    } else {
        let document = stored
            .open()
            .map_err(|error| Failure::opening(key, error))?;
        let (payload, below) = split_pointer(pointer);
        match document.payload_at(payload) {
            Payload::Missing => return Err(missing(pointer)),
            Payload::Json(text) if is_call => (JSON, as_call(text)?),
            Payload::Json(text) if below.is_empty() => (JSON, text.as_bytes().to_vec()),
            Payload::Json(text) => (JSON, part(text, below).ok_or_else(|| missing(pointer))?),
            Payload::Text(text) => (TEXT, text.as_bytes().to_vec()),
            Payload::Base64(text) => {
                let bytes = BASE64_STANDARD.decode(text);
                (BYTES, bytes.unwrap_or_else(|_| text.as_bytes().to_vec()))
            }
        }
    };
    let mut response = ([(CONTENT_TYPE, content_type)], body).into_response();
    if params.text("download").is_some() {
        let name = file_name(key, pointer);
        let attached = HeaderValue::try_from(format!("attachment; filename=\"{name}.json\""));
        if let Ok(attached) = attached {
            response.headers_mut().insert(CONTENT_DISPOSITION, attached);
        }
    }
    Ok(response)
}

pub(super) fn missing(pointer: &str) -> Failure {
    Failure::Missing {
        what: format!("The object has nothing at {pointer}."),
        advice: "A pointer such as /steps/2/request names a payload; the object may have fewer steps.",
    }
}

fn part(text: &str, below: &str) -> Option<Vec<u8>> {
    let value = Json::parse(text).ok()?;
    serde_json::to_vec_pretty(value.at_pointer(below)?).ok()
}

/// A request as a function can be called with it. What was redacted where bytes belong, which JSON
/// has in base64, would not even parse.
fn as_call(text: &str) -> Result<Vec<u8>, Failure> {
    let mut request =
        Json::parse(text).map_err(|_| Failure::Odd("This request is no JSON.".to_owned()))?;
    encode_redacted(&mut request, false);
    serde_json::to_vec(&request).map_err(|error| Failure::Odd(error.to_string()))
}

fn encode_redacted(value: &mut Json<'_>, is_bytes: bool) {
    match value {
        Json::Text(text) if is_bytes && text == REDACTED => {
            *text = Cow::Owned(BASE64_STANDARD.encode(REDACTED));
        }
        Json::List(items) => items
            .iter_mut()
            .for_each(|item| encode_redacted(item, is_bytes)),
        Json::Object(members) => {
            for (name, member) in members {
                // NOTE: a resource may have members of these names, which hold what they like.
                if name == "resource" {
                    continue;
                }
                let is_bytes = is_bytes || name == "connectionDetails" || name == "credentials";
                encode_redacted(member, is_bytes);
            }
        }
        _ => {}
    }
}

/// The end of the key and the pointer, as a file may be called.
fn file_name(key: &str, pointer: &str) -> String {
    let name = key.rsplit('/').next().unwrap_or_default();
    let name = name.split(".json").next().unwrap_or_default();
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() || character == '-' || character == '.' {
            character
        } else {
            '-'
        }
    };
    format!("{name}{pointer}")
        .chars()
        .map(plain)
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_bytes_where_bytes_belong() {
        let request = format!(
            r#"{{"credentials":{{"c":{{"credentialData":{{"data":{{"k":"{REDACTED}"}}}}}}}},
            "observed":{{"composite":{{"connectionDetails":{{"k":"{REDACTED}"}},
            "resource":{{"connectionDetails":"{REDACTED}"}}}}}}}}"#
        );
        let call: serde_json::Value = serde_json::from_slice(&as_call(&request).unwrap()).unwrap();
        let encoded = BASE64_STANDARD.encode(REDACTED);
        let at = |pointer| call.pointer(pointer).unwrap().as_str().unwrap();
        assert_eq!(at("/credentials/c/credentialData/data/k"), encoded);
        assert_eq!(at("/observed/composite/connectionDetails/k"), encoded);
        assert_eq!(
            at("/observed/composite/resource/connectionDetails"),
            REDACTED
        );
    }

    #[test]
    fn files_are_called_by_what_they_hold() {
        let key = "v1/reconciles/K/_/n/2026-11-16/043646.133-t.json.zst";
        assert_eq!(
            file_name(key, "/steps/2/request"),
            "043646.133-t-steps-2-request"
        );
    }
}
