//! A real S3 server in this process, that can be told to fail.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use s3s::{
    Body, HttpRequest, HttpResponse,
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use spanplane::archive::Variables;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tower::service_fn;

/// Where everything goes.
pub const BUCKET: &str = "payloads";

/// What the server does to a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mood {
    Works,
    Unavailable,
    Denies,
    HasNoBucket,
    /// Lets nobody read.
    IsWriteOnly,
    /// Answers that it does not know If-None-Match.
    KnowsNoConditions,
    /// Both of these.
    IsWriteOnlyWithoutConditions,
    Hangs,
    /// Takes no object whose key holds this word.
    Refuses(&'static str),
    /// Answers so where the key holds this word.
    FailsAt(&'static str, u16, &'static str),
    /// Is overloaded, and takes one write in ten.
    Throttles,
    /// Takes nothing that comes with a header of this name, or of one that begins with it.
    RefusesHeader(&'static str),
    /// Answers every write with this status and code, also that of the check.
    RefusesAll(u16, &'static str),
    /// Does so until this many writes were not taken, since the start.
    RefusesUntil(usize, u16, &'static str),
    /// Lists objects whose key holds this word, and finds none of them.
    Hides(&'static str),
    /// Lets nobody read objects whose key holds this word.
    DeniesReading(&'static str),
}

#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    mood: watch::Sender<Mood>,
    /// Writes that were not taken.
    failures: watch::Sender<usize>,
    /// Writes that were taken.
    writes: watch::Sender<usize>,
    /// Paths of writes, taken or not.
    tries: Arc<Mutex<Vec<String>>>,
    /// Those of temporary credentials that requests came with.
    session_tokens: Arc<Mutex<BTreeSet<String>>>,
    accepting: JoinHandle<()>,
    folder: TempDir,
}

impl S3Server {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("inspector", "inspector-secret"));
        let service = builder.build();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mood, moods) = watch::channel(Mood::Works);
        let failures = watch::Sender::new(0);
        let writes = watch::Sender::new(0);
        let writing = Arc::new(tokio::sync::Mutex::new(()));
        let tries = Arc::default();
        let session_tokens = Arc::default();
        let counters = Arc::new(Counters {
            failures: failures.clone(),
            writes: writes.clone(),
            tries: Arc::clone(&tries),
            session_tokens: Arc::clone(&session_tokens),
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "a server for tests has no stages"
        )]
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (service, moods) = (service.clone(), moods.clone());
                let (counters, writing) = (Arc::clone(&counters), Arc::clone(&writing));
                let answer = service_fn(move |request| {
                    let (service, moods) = (service.clone(), moods.clone());
                    let (counters, writing) = (Arc::clone(&counters), Arc::clone(&writing));
                    async move {
                        let answer = answer(request, service, moods, &counters, &writing).await;
                        Ok::<_, Infallible>(answer)
                    }
                });
                tokio::spawn(async move {
                    let connection = Builder::new(TokioExecutor::new());
                    let answer = TowerToHyperService::new(answer);
                    // A client that goes away is no concern of the server.
                    drop(
                        connection
                            .serve_connection(TokioIo::new(stream), answer)
                            .await,
                    );
                });
            }
        });
        Self {
            address,
            mood,
            failures,
            writes,
            tries,
            session_tokens,
            accepting,
            folder,
        }
    }

    pub fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// Waits until this many writes were not taken.
    pub async fn failed(&self, count: usize) {
        let mut failures = self.failures.subscribe();
        failures
            .wait_for(|failures| *failures >= count)
            .await
            .unwrap();
    }

    /// Waits for one more write that was not taken.
    pub async fn fails_again(&self) {
        let before = *self.failures.borrow();
        self.failed(before + 1).await;
    }

    /// Writes that were not taken so far.
    pub fn failures(&self) -> usize {
        *self.failures.borrow()
    }

    /// The file in which it keeps an object.
    pub fn file(&self, key: &str) -> std::path::PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }

    /// Writes taken so far.
    pub fn writes(&self) -> usize {
        *self.writes.borrow()
    }

    /// How often it was tried to write something whose key holds this word.
    pub fn tries_of(&self, word: &str) -> usize {
        let tries = self.tries.lock().unwrap();
        tries.iter().filter(|path| path.contains(word)).count()
    }

    /// Whether a request came with this one, of temporary credentials.
    pub fn has_seen_session_token(&self, token: &str) -> bool {
        self.session_tokens.lock().unwrap().contains(token)
    }

    /// Every line of the index, as it is in the bucket.
    pub fn index_lines(&self) -> Vec<serde_json::Value> {
        let mut lines = Vec::new();
        let mut folders = vec![self.folder.path().join(BUCKET)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.to_str().unwrap().ends_with(".jsonl.zst") {
                    let packed = std::fs::read(&path).unwrap();
                    let text = zstd::decode_all(&*packed).unwrap();
                    let text = String::from_utf8(text).unwrap();
                    lines.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
                }
            }
        }
        lines
    }

    pub fn url(prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn variables(&self) -> Variables {
        Variables::from_iter([
            ("AWS_ENDPOINT_URL", self.endpoint().as_str()),
            ("AWS_ACCESS_KEY_ID", "inspector"),
            ("AWS_SECRET_ACCESS_KEY", "inspector-secret"),
            ("AWS_REGION", "us-east-1"),
        ])
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What is counted.
struct Counters {
    failures: watch::Sender<usize>,
    writes: watch::Sender<usize>,
    tries: Arc<Mutex<Vec<String>>>,
    session_tokens: Arc<Mutex<BTreeSet<String>>>,
}

async fn answer(
    request: hyper::Request<hyper::body::Incoming>,
    service: S3Service,
    moods: watch::Receiver<Mood>,
    counters: &Counters,
    writing: &tokio::sync::Mutex<()>,
) -> HttpResponse {
    let Counters {
        failures,
        writes,
        tries,
        session_tokens,
    } = counters;
    if let Some(token) = request.headers().get("x-amz-security-token") {
        let token = token.to_str().unwrap().to_owned();
        session_tokens.lock().unwrap().insert(token);
    }
    let is_write = matches!(*request.method(), hyper::Method::PUT | hyper::Method::POST);
    let is_check = request.uri().path().ends_with("/check.json");
    let mood = *moods.borrow();
    let path = request.uri().path().replace("%3D", "=");
    let mut number = 0_usize;
    if is_write && !is_check {
        let mut tries = tries.lock().unwrap();
        tries.push(path.clone());
        number = tries.len();
    }
    let fault = match mood {
        Mood::IsWriteOnly => (!is_write).then_some((403, "AccessDenied")),
        Mood::RefusesAll(status, code) => is_write.then_some((status, code)),
        Mood::RefusesUntil(count, status, code) => {
            (is_write && *failures.borrow() < count).then_some((status, code))
        }
        Mood::Hides(word) => (!is_write && path.contains(word)).then_some((404, "NoSuchKey")),
        Mood::DeniesReading(word) => {
            (!is_write && path.contains(word)).then_some((403, "AccessDenied"))
        }
        Mood::RefusesHeader(name) => {
            let mut names = request.headers().keys();
            let is_refused = is_write && names.any(|known| known.as_str().starts_with(name));
            is_refused.then_some((400, "InvalidArgument"))
        }
        Mood::IsWriteOnlyWithoutConditions if !is_write => Some((403, "AccessDenied")),
        Mood::KnowsNoConditions | Mood::IsWriteOnlyWithoutConditions => request
            .headers()
            .contains_key("if-none-match")
            .then_some((501, "NotImplemented")),
        _ if !is_write || is_check => None,
        Mood::Works => None,
        Mood::Unavailable => Some((503, "SlowDown")),
        Mood::Denies => Some((403, "AccessDenied")),
        Mood::HasNoBucket => Some((404, "NoSuchBucket")),
        Mood::Hangs => {
            failures.send_modify(|count| *count += 1);
            return std::future::pending().await;
        }
        Mood::Refuses(word) => path.contains(word).then_some((400, "EntityTooLarge")),
        Mood::FailsAt(word, status, code) => path.contains(word).then_some((status, code)),
        // NOTE: not every tenth, since clients try again in pairs.
        Mood::Throttles => {
            let draw = number.wrapping_mul(2_654_435_761) >> 16;
            (!draw.is_multiple_of(10)).then_some((503, "SlowDown"))
        }
    };
    if let Some((status, code)) = fault {
        failures.send_modify(|count| *count += 1);
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
        let mut answer = HttpResponse::new(Body::from(Bytes::from(body)));
        *answer.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
        return answer;
    }
    let mut request = HttpRequest::from(request.map(Body::from));
    // `s3s-fs` looks before it writes, so two writes at once could both create the same object.
    let _one_at_a_time = if is_write {
        let body = request.body_mut().store_all_limited(usize::MAX).await;
        if body.is_err() {
            // The client went away; nobody will read this.
            let mut answer = HttpResponse::new(Body::empty());
            *answer.status_mut() = hyper::StatusCode::BAD_REQUEST;
            return answer;
        }
        Some(writing.lock().await)
    } else {
        None
    };
    let answer = service.call(request).await.unwrap();
    if is_write && !is_check {
        writes.send_modify(|count| *count += 1);
    }
    answer
}
