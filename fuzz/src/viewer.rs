//! The viewer: any request gets an answer that is safe to show.
//!
//! The first line is an address; further lines are headers. They are asked of a viewer over the
//! bucket that version 0.1 wrote, with and without a token.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    sync::{Arc, LazyLock},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{
        HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri,
        header::{CONTENT_TYPE, HOST, LOCATION},
    },
};
use object_store::{ObjectStoreExt as _, PutPayload, memory::InMemory};
use spanplane::{
    archive::{Archive, Compression},
    time::{Clock, Timestamp},
    viewer::{Access, Token, Viewer},
};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

/// No page is larger; documents in the bucket are smaller too.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Half an hour after the reconciles in the bucket began.
const NOW: i64 = 1_795_021_800_000_000_000;
const TOKEN: &str = "0123456789abcdef";

#[derive(Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(NOW)
    }
}

struct World {
    runtime: Runtime,
    open: Router,
    closed: Router,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let store = Arc::new(InMemory::new());
    // That of the fuzz targets, or the one above.
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut buckets = folders.map(|folder| folder.join("tests/fixtures/v0.1/bucket"));
    let bucket = buckets.find(|bucket| bucket.is_dir()).unwrap();
    runtime.block_on(fill(&store, &bucket, &bucket));
    let router = |token: Option<&str>| {
        let archive = Archive::over(Arc::clone(&store) as _, Compression::default());
        let token = token.map(|token| Token::new(token.to_owned()).unwrap());
        let access = Access::new([127, 0, 0, 1].into(), Some("https://viewer.test"), token);
        Viewer::new(archive, access, Arc::new(Stopped)).routes()
    };
    World {
        open: router(None),
        closed: router(Some(TOKEN)),
        runtime,
    }
});

/// Puts all files below a folder into the store.
async fn fill(store: &InMemory, bucket: &Path, folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            Box::pin(fill(store, bucket, &path)).await;
            continue;
        }
        let key = path.strip_prefix(bucket).unwrap().to_str().unwrap();
        let content = PutPayload::from(fs::read(&path).unwrap());
        store.put(&key.into(), content).await.unwrap();
    }
}

/// See above.
pub fn check(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let address = address_of(lines.next().unwrap_or_default());
    let Ok(uri) = address.parse::<Uri>() else {
        return;
    };
    let headers = headers_of(lines);
    let is_known = headers.get(HOST).is_some_and(|host| host == "localhost");
    let world = &*WORLD;
    let closed = world.ask(&world.closed, &uri, &headers);
    let brings_token = input
        .windows(TOKEN.len())
        .any(|part| part == TOKEN.as_bytes())
        || address.contains('%')
        || headers.contains_key("cookie");
    if !brings_token && !address.starts_with("/healthz") {
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::MISDIRECTED_REQUEST];
        let status = closed.status;
        assert!(
            refused.contains(&status) || status == StatusCode::URI_TOO_LONG,
            "{address} is answered with {status} to who has no token"
        );
    }
    let open = world.ask(&world.open, &uri, &headers);
    if is_known && address == "/" {
        assert_eq!(open.status, StatusCode::OK);
    }
}

struct Answer {
    status: StatusCode,
}

impl World {
    fn ask(&self, viewer: &Router, uri: &Uri, headers: &HeaderMap) -> Answer {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        self.runtime.block_on(async {
            let response = viewer.clone().oneshot(request).await.unwrap();
            let (head, body) = response.into_parts();
            let body = to_bytes(body, MAX_BYTES).await.unwrap();
            check_answer(uri, head.status, &head.headers, &body);
            Answer {
                status: head.status,
            }
        })
    }
}

fn check_answer(uri: &Uri, status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{uri}");
    for name in [
        "content-security-policy",
        "x-content-type-options",
        "x-frame-options",
        "referrer-policy",
        "cache-control",
    ] {
        assert!(headers.contains_key(name), "{uri} has no {name}");
    }
    if let Some(location) = headers.get(LOCATION) {
        let location = location.as_bytes();
        let is_here =
            matches!(location, [b'/'] | [b'/', b'!'..=b'.' | b'0'..=b'[' | b']'..=b'~', ..]);
        assert!(is_here, "{uri} leads to {location:?}");
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    if content_type.starts_with(b"text/html") {
        let page = std::str::from_utf8(body).unwrap();
        // What was searched for stands in the form again, as a value.
        for obeyed in ["<fuzz", "\" onfuzz=", "src=\"fuzz:", "action=\"fuzz:"] {
            assert!(!page.contains(obeyed), "{uri} has {obeyed:?}");
        }
        for link in page.split(" href=\"").skip(1) {
            let link = link.split('"').next().unwrap_or_default();
            let link = link.replace("&amp;", "&");
            assert!(link.starts_with(['/', '#', '?']), "{uri} links to {link}");
            assert!(!link.starts_with("//"), "{uri} links to {link}");
            let without_place = link.split('#').next().unwrap_or_default();
            let is_address = without_place.is_empty() || without_place.parse::<Uri>().is_ok();
            assert!(is_address, "{uri} links to {link}");
        }
    }
}

/// What can't stand in an address is written as it can.
fn address_of(line: &[u8]) -> String {
    let mut address = String::from(if line.starts_with(b"/") { "" } else { "/" });
    for byte in line {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(byte) {
            address.push(char::from(*byte));
        } else {
            write!(address, "%{byte:02X}").unwrap();
        }
    }
    address
}

/// With a host, if none is given.
fn headers_of<'l>(lines: impl Iterator<Item = &'l [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = HeaderName::from_bytes(parts.next().unwrap_or_default());
        let value = parts.next().unwrap_or_default().trim_ascii();
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
        .entry(HOST)
        .or_insert(HeaderValue::from_static("localhost:8686"));
    headers
}
