//! A real S3 server in this process, that can be told to fail.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

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
    Hangs,
    /// Takes no object whose key holds this word.
    Refuses(&'static str),
}

#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    mood: watch::Sender<Mood>,
    /// Writes that were not taken.
    failures: watch::Sender<usize>,
    /// Writes that were taken.
    writes: watch::Sender<usize>,
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
        let counters = Arc::new((failures.clone(), writes.clone()));
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
                let counters = Arc::clone(&counters);
                let answer = service_fn(move |request| {
                    let (service, moods) = (service.clone(), moods.clone());
                    let counters = Arc::clone(&counters);
                    async move {
                        let answer = answer(request, service, moods, &counters).await;
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

    /// Writes taken so far.
    pub fn writes(&self) -> usize {
        *self.writes.borrow()
    }

    pub fn url(prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
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

async fn answer(
    request: hyper::Request<hyper::body::Incoming>,
    service: S3Service,
    moods: watch::Receiver<Mood>,
    (failures, writes): &(watch::Sender<usize>, watch::Sender<usize>),
) -> HttpResponse {
    let is_write = matches!(*request.method(), hyper::Method::PUT | hyper::Method::POST);
    let is_check = request.uri().path().ends_with("/check.json");
    let mood = *moods.borrow();
    let fault = match mood {
        Mood::IsWriteOnly => (!is_write).then_some((403, "AccessDenied")),
        _ if !is_write || is_check => None,
        Mood::Works => None,
        Mood::Unavailable => Some((503, "SlowDown")),
        Mood::Denies => Some((403, "AccessDenied")),
        Mood::HasNoBucket => Some((404, "NoSuchBucket")),
        Mood::KnowsNoConditions => request
            .headers()
            .contains_key("if-none-match")
            .then_some((501, "NotImplemented")),
        Mood::Hangs => {
            failures.send_modify(|count| *count += 1);
            return std::future::pending().await;
        }
        Mood::Refuses(word) => request
            .uri()
            .path()
            .contains(word)
            .then_some((400, "EntityTooLarge")),
    };
    if let Some((status, code)) = fault {
        failures.send_modify(|count| *count += 1);
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
        let mut answer = HttpResponse::new(Body::from(Bytes::from(body)));
        *answer.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
        return answer;
    }
    let answer = service
        .call(HttpRequest::from(request.map(Body::from)))
        .await
        .unwrap();
    if is_write && !is_check {
        writes.send_modify(|count| *count += 1);
    }
    answer
}
