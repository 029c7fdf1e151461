//! `/raw`: a payload, a part of it or a whole object, as it is stored.
//!
//! Invariant: memory holds pieces of it, whatever its size; a few clients read at once, and the
//! others wait.

mod call;

use std::{io, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{RawQuery, State},
    http::{
        HeaderValue,
        header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    },
    response::{IntoResponse, Redirect, Response},
};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Duration, Instant};

use self::call::CallWriter;
use super::{
    Viewer,
    address::{self, Params},
    failure::Failure,
    moved::moved_to,
    open::absence,
};
use crate::{
    answers::{Form, PayloadsError, ValueStream},
    archive::{Inflating, Key},
    causes::with_causes,
    pace::breathe,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// How long to wait while others download; after that the client is told to come back.
const WAIT: Duration = Duration::from_secs(3);
/// Of what is read before the answer begins. What is no longer than this has a length, and its
/// errors a page.
const AHEAD_BYTES: usize = 64 * 1024;

pub(super) async fn show(
    State(viewer): State<Arc<Viewer>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let params = Params::parse(query.as_deref());
    let key = params.text("key").unwrap_or_default();
    let pointer = params.text("pointer").unwrap_or_default();
    let is_call = params.text("as") == Some("call");
    let parsed = Key::parse(key).ok_or_else(|| PayloadsError::NotAKey(key.to_owned()))?;
    let until = Instant::now() + WAIT;
    let turn = viewer.bodies.take_stream(until).await;
    let turn = turn.ok_or(Failure::Busy)?;
    let begun = match viewer.download(key, pointer, is_call).await {
        Ok(download) => begin(download.ok_or_else(|| missing(pointer))?).await,
        Err(error) => Err(error),
    };
    let (content_type, body) = match begun {
        Ok(Begun::Whole(content_type, bytes)) => (content_type, Body::from(bytes)),
        Ok(Begun::Part(content_type, ahead, download)) => {
            let ahead = stream::once(async move { Ok(ahead) });
            let pieces = ahead.chain(rest_of(download, key.to_owned()));
            (content_type, viewer.bodies.stream(pieces, turn))
        }
        Err(error) => {
            let line = viewer.line_of(&parsed, None).await;
            let moved = match &line {
                Ok(Some(line)) => moved_to(&error, &parsed, pointer, line),
                _ => None,
            };
            let (key, pointer) = moved.ok_or_else(|| absence(error, line))?;
            let rest = params.without(&["key", "pointer"]);
            let now = format!("{}&{rest}", address::raw(&key, &pointer));
            return Ok(Redirect::temporary(&now).into_response());
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

/// What is downloaded.
enum Download {
    /// The text of the object.
    Object(Inflating),
    Value(ValueStream),
    Call(ValueStream, CallWriter),
}

impl Viewer {
    /// `None` if nothing stands there.
    async fn download(
        &self,
        key: &str,
        pointer: &str,
        is_call: bool,
    ) -> Result<Option<Download>, PayloadsError> {
        if pointer.is_empty() {
            let object = self.answers.text_stream(key).await?;
            return Ok(Some(Download::Object(object)));
        }
        let value = self.answers.value_stream(key, pointer).await?;
        Ok(value.map(|value| match value.form() {
            Form::Json if is_call => Download::Call(value, CallWriter::default()),
            _ => Download::Value(value),
        }))
    }
}

impl Download {
    fn content_type(&self) -> HeaderValue {
        match self {
            Self::Object(_) | Self::Call(..) => JSON,
            Self::Value(value) => match value.form() {
                Form::Json => JSON,
                Form::Text => TEXT,
                Form::Bytes => BYTES,
            },
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, PayloadsError> {
        match self {
            Self::Object(object) => {
                breathe();
                tokio::task::yield_now().await;
                object.next().await.map_err(PayloadsError::Fetch)
            }
            Self::Value(value) => value.next().await,
            Self::Call(value, writer) => {
                let piece = value.next().await?;
                Ok(piece.map(|piece| writer.go_on(&piece).into()))
            }
        }
    }
}

/// The beginning of a download, or all of it if it is short.
enum Begun {
    Whole(HeaderValue, Bytes),
    Part(HeaderValue, Bytes, Box<Download>),
}

async fn begin(mut download: Download) -> Result<Begun, PayloadsError> {
    let content_type = download.content_type();
    let mut ahead = Vec::new();
    while ahead.len() < AHEAD_BYTES {
        match download.next().await? {
            Some(piece) => ahead.extend_from_slice(&piece),
            None => return Ok(Begun::Whole(content_type, ahead.into())),
        }
    }
    Ok(Begun::Part(content_type, ahead.into(), Box::new(download)))
}

/// What follows. An error ends the connection before its time: the client must not take what it
/// has for all.
fn rest_of(
    download: Box<Download>,
    key: String,
) -> impl futures_util::Stream<Item = Result<Bytes, axum::Error>> + Send {
    stream::unfold(Some((download, key)), |state| async {
        let (mut download, key) = state?;
        match download.next().await {
            Ok(piece) => Some((Ok(piece?), Some((download, key)))),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(key, error, "cannot go on with a download");
                Some((Err(axum::Error::new(io::Error::other(error))), None))
            }
        }
    })
}

pub(super) fn missing(pointer: &str) -> Failure {
    Failure::Missing {
        what: format!("The object has nothing at {pointer}."),
        advice: "A pointer such as /steps/2/request names a payload; the object may have fewer steps.",
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
    fn files_are_called_by_what_they_hold() {
        let key = "v1/reconciles/K/_/n/2026-11-16/043646.133-t.json.zst";
        assert_eq!(
            file_name(key, "/steps/2/request"),
            "043646.133-t-steps-2-request"
        );
    }
}
