//! What every request passes: limits, access, and the headers of every answer.
//!
//! Invariant: nothing that a page shows can run, load or send anything that is not our own; and
//! neither many requests nor a long one take more than their share.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, SET_COOKIE,
            WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{Viewer, access::Verdict, failure::Failure};

/// Requests that are worked on at once; the others wait.
pub(super) const AT_WORK: usize = 4;
/// Nobody looks at a page for which they waited longer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest key is 255 bytes; filters are words.
const MAX_ADDRESS_BYTES: usize = 4096;

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// Lets a request through, or says why not.
pub(super) async fn guard(
    State(viewer): State<Arc<Viewer>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = admit(&viewer, request, next).await;
    secure(response.headers_mut());
    response
}

async fn admit(viewer: &Viewer, request: Request, next: Next) -> Response {
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let allowed = [(ALLOW, HeaderValue::from_static("GET, HEAD"))];
        return (StatusCode::METHOD_NOT_ALLOWED, allowed).into_response();
    }
    let address = request.uri().path_and_query();
    if address.is_some_and(|address| address.as_str().len() > MAX_ADDRESS_BYTES) {
        return Failure::TooLong.into_response();
    }
    match viewer.access.judge(request.uri(), request.headers()) {
        Verdict::Welcome => {}
        Verdict::Misdirected => return Failure::Misdirected.into_response(),
        Verdict::Remember { location, cookie } => return remember(&location, &cookie),
        Verdict::Unknown => {
            let challenge = HeaderValue::from_static("Bearer");
            let page = Failure::Unknown.into_response();
            return ([(WWW_AUTHENTICATE, challenge)], page).into_response();
        }
    }
    let work = async {
        // It is never closed.
        let _turn = viewer.turns.acquire().await;
        next.run(request).await
    };
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.unwrap_or_else(|_| Failure::TooSlow.into_response())
}

fn remember(location: &str, cookie: &str) -> Response {
    let values = (
        HeaderValue::try_from(location),
        HeaderValue::try_from(cookie),
    );
    let (Ok(location), Ok(cookie)) = values else {
        return Failure::TooLong.into_response();
    };
    let headers = [(LOCATION, location), (SET_COOKIE, cookie)];
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn secure(headers: &mut HeaderMap) {
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        "cross-origin-opener-policy",
        HeaderValue::from_static("same-origin"),
    );
    // What a page shows is nobody else's business, nor the disk's.
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}
