//! What every request passes: limits, access, and the headers of every answer.
//!
//! Invariant: nothing that a page shows can run, load or send anything that is not our own;
//! neither many requests nor a long one take more than their share; and every request is answered,
//! even one that trips over a mistake of ours.

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
use tokio::time::Instant;

use super::{Viewer, access::Verdict, failure::Failure};
use crate::panics::Task;

/// Requests that are worked on at once; the others wait.
pub(super) const AT_WORK: usize = 4;
/// Nobody looks at a page for which they waited longer.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
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
    let until = Instant::now() + DEADLINE;
    let work = async {
        // It is never closed.
        let _turn = viewer.turns.acquire().await;
        let (head, body) = answer(viewer, request, next).await.into_parts();
        match viewer.bodies.hold(body, until).await {
            Some(body) => Response::from_parts(head, body),
            None => Failure::Busy.into_response(),
        }
    };
    let done = tokio::time::timeout_at(until, work).await;
    done.unwrap_or_else(|_| Failure::TooSlow.into_response())
}

/// The page, or what stands for one that can't be made.
async fn answer(viewer: &Viewer, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    // NOTE: nothing that a handler may leave half done outlives it; permits are given back.
    let page = viewer.panics.catch_in(Task::Viewer, next.run(request));
    match page.await {
        Ok(page) => {
            viewer.panics.works(Task::Viewer);
            page
        }
        Err(error) => {
            tracing::warn!(path, %error, "cannot make a page");
            Failure::Broken.into_response()
        }
    }
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

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, http::header::HOST, middleware, routing::get};
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        archive::{Archive, Compression, StoreUrl, Variables},
        time::SystemClock,
        viewer::Access,
    };

    #[tokio::test]
    async fn a_page_that_breaks_is_answered_and_takes_nothing_from_the_next() {
        let url = StoreUrl::parse("memory:///").unwrap();
        let archive = Archive::open(&url, &Variables::default(), Compression::default()).unwrap();
        let access = Access::new([127, 0, 0, 1].into(), None, None);
        let viewer = Arc::new(Viewer::new(archive, access, Arc::new(SystemClock)));
        let broken = || async { "there is no page".parse::<u8>().unwrap().to_string() };
        let routes = Router::new()
            .route("/", get(broken))
            .layer(middleware::from_fn_with_state(Arc::clone(&viewer), guard));
        for _ in 0..=AT_WORK {
            let request = Request::get("/").header(HOST, "localhost");
            let request = request.body(Body::empty()).unwrap();
            let response = routes.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert!(response.headers().contains_key(CONTENT_SECURITY_POLICY));
        }
        assert_eq!(viewer.turns.available_permits(), AT_WORK);
    }
}
