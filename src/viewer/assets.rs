//! Style, script, icon, and what a call is made by: compiled in, and named by what they hold, so that a browser keeps each
//! for as long as it likes and never shows an old one.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};

use crate::reconcile::PayloadHash;

const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// Digits of the hash that stand in a name.
const DIGITS: usize = 12;

/// A file that pages need or offer.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) address: String,
    content_type: &'static str,
    content: &'static str,
}

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    // The palette, then what is on every page, then page by page.
    const PARTS: &str = concat!(
        include_str!("assets/palette.css"),
        include_str!("assets/frame.css"),
        include_str!("assets/pages.css"),
        include_str!("assets/matrix.css"),
        include_str!("assets/payload.css"),
    );
    Asset::new("viewer", "css", "text/css; charset=utf-8", PARTS)
});

pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("assets/viewer.js");
    Asset::new("viewer", "js", "text/javascript; charset=utf-8", content)
});

pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("assets/icon.svg");
    Asset::new("icon", "svg", "image/svg+xml", content)
});

/// What `grpcurl` needs to know to call a function.
pub(super) static PROTO: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("../../proto/apiextensions/fn/proto/v1/run_function.proto");
    Asset::new(
        "run_function",
        "proto",
        "text/plain; charset=utf-8",
        content,
    )
});

impl Asset {
    fn new(stem: &str, ending: &str, content_type: &'static str, content: &'static str) -> Self {
        let hash = PayloadHash::of(content.as_bytes()).to_string();
        let digits: String = hash.chars().take(DIGITS).collect();
        Self {
            address: format!("/assets/{stem}-{digits}.{ending}"),
            content_type,
            content,
        }
    }
}

/// Serves one of them, by its name.
pub(super) async fn serve_asset(Path(name): Path<String>) -> Response {
    let assets = [&*STYLE, &*SCRIPT, &*ICON, &*PROTO];
    let found = assets
        .into_iter()
        .find(|asset| asset.address.strip_prefix("/assets/") == Some(name.as_str()));
    match found {
        Some(asset) => {
            let content_type = HeaderValue::from_static(asset.content_type);
            let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, FOR_EVER)];
            (headers, asset.content).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
