//! `/metrics`, `/healthz` and `/readyz`.
//!
//! `/healthz` is whether to restart the process; `/readyz` is whether everything works. A store
//! that can't be reached for a while is no reason against that: messages are taken, and what they
//! become waits on disk. A store that refuses, or a task that panicked, is: somebody has to act
//! before the disk is full.
//!
//! Invariant: nothing here shows a payload, a name or a setting; it may listen on every interface.
//! A probe gets in before it gives up, whatever the other clients do.

use std::{
    fmt::Write as _,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    archive::Standing,
    metrics::Metrics,
    panics::{Panics, Task},
    web,
};

/// What is shown.
pub(super) struct Health {
    pub(super) metrics: Metrics,
    /// Messages are not taken any more.
    pub(super) stopping: Arc<AtomicBool>,
    /// How writing to the store goes.
    pub(super) store: watch::Receiver<Standing>,
}

pub(super) async fn serve_health(
    health: Health,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let panics = health.metrics.panics().clone();
    serve_briefly(routes(health), listener, panics, stop).await
}

async fn serve_briefly(
    routes: Router,
    listener: TcpListener,
    panics: Panics,
    stop: CancellationToken,
) -> io::Result<()> {
    web::serve(listener, routes, web::For::Probes, panics, stop).await
}

fn routes(health: Health) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(show_readiness))
        .with_state(Arc::new(health))
}

async fn show_metrics(State(health): State<Arc<Health>>) -> Response {
    let failed = |error: String| {
        let error = format!("{error}\n");
        (StatusCode::INTERNAL_SERVER_ERROR, error).into_response()
    };
    let panics = health.metrics.panics();
    match panics.catch(Task::Metrics, || health.metrics.text()) {
        Ok(Ok(text)) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Ok(Err(error)) => failed(error.to_string()),
        Err(panicked) => failed(panicked.to_string()),
    }
}

async fn show_readiness(State(health): State<Arc<Health>>) -> Response {
    let store = health.store.borrow().clone();
    let (is_ready, text) = health.readiness(&store);
    if is_ready {
        text.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

impl Health {
    /// Whether everything works, and a line for each thing that does not.
    fn readiness(&self, store: &Standing) -> (bool, String) {
        let mut against = String::new();
        if self.stopping.load(Ordering::Relaxed) {
            against.push_str("stopping: messages are not taken\n");
        }
        for task in self.metrics.panics().broken() {
            let task = task.as_str();
            writeln!(against, "the {task} task panicked; the log says where").unwrap_or_default();
        }
        let mut text = String::new();
        if let Standing::Fails { trouble, .. } = store {
            let (cause, what, advice) = (trouble.as_str(), trouble.what(), trouble.advice());
            if trouble.is_lasting() {
                writeln!(against, "store refused ({cause}): {what}; {advice}")
            } else {
                writeln!(text, "store away ({cause}): {what}; payloads wait on disk")
            }
            .unwrap_or_default();
        }
        let is_ready = against.is_empty();
        let verdict = if is_ready { "ready\n" } else { "not ready\n" };
        (is_ready, format!("{verdict}{against}{text}"))
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "servers and clients of tests belong to no stage"
)]
mod tests {
    use std::net::SocketAddr;

    use axum::body::Body;
    use bytes::Bytes;
    use futures_util::stream;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpSocket, TcpStream},
        sync::Semaphore,
        time::timeout,
    };

    use super::*;
    use crate::archive::Trouble;

    const ENDLESS: &str = "/endless";

    /// A client that asks several times at once and reads nothing.
    async fn asking_without_end(address: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut client = socket.connect(address).await.unwrap();
        let ask = format!("GET {ENDLESS} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(8);
        client.write_all(ask.as_bytes()).await.unwrap();
        client
    }

    #[tokio::test]
    async fn probes_are_answered_while_clients_ask_again_and_again_and_read_nothing() {
        let (_, store) = watch::channel(Standing::Unknown);
        let health = Health {
            metrics: Metrics::new().unwrap(),
            stopping: Arc::default(),
            store,
        };
        let asked = Arc::new(Semaphore::new(0));
        let seen = Arc::clone(&asked);
        let endless = get(async move || {
            seen.add_permits(1);
            let piece = Bytes::from(vec![b'x'; 64 * 1024]);
            let pieces = stream::repeat_with(move || Ok::<_, io::Error>(piece.clone()));
            Body::from_stream(pieces)
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = routes(health).route(ENDLESS, endless);
        let panics = Panics::default();
        tokio::spawn(serve_briefly(
            routes,
            listener,
            panics,
            CancellationToken::new(),
        ));

        let mut others = Vec::new();
        for _ in 0..web::MAX_CONNECTIONS {
            others.push(asking_without_end(address).await);
        }
        let all_asked = asked.acquire_many(u32::try_from(web::MAX_CONNECTIONS).unwrap());
        all_asked.await.unwrap().forget();
        // As many again want a seat before the probe does.
        for _ in 0..web::MAX_CONNECTIONS {
            others.push(asking_without_end(address).await);
        }

        let mut probe = TcpStream::connect(address).await.unwrap();
        let ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        probe.write_all(ask).await.unwrap();
        let mut answer = String::new();
        // Much longer than it takes until the others make room, and less than people would have.
        let limit = web::For::People.stuck_after() * 2 / 3;
        let answered = timeout(limit, probe.read_to_string(&mut answer));
        answered.await.expect("it gets in").unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
    }

    #[tokio::test]
    async fn of_requests_that_were_sent_at_once_one_is_answered() {
        let (_, store) = watch::channel(Standing::Unknown);
        let health = Health {
            metrics: Metrics::new().unwrap(),
            stopping: Arc::default(),
            store,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        tokio::spawn(serve_health(health, listener, CancellationToken::new()));
        let ask = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3);
        client.write_all(ask.as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        // What was sent beyond the first request may reset the connection.
        while let Ok(1..) = client.read_buf(&mut answers).await {}
        let answers = String::from_utf8(answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
    }

    fn fails(trouble: Trouble) -> Standing {
        Standing::Fails {
            trouble,
            detail: "in words of its own".to_owned(),
        }
    }

    #[test]
    fn an_outage_is_told_apart_from_a_refusal_and_from_a_panic() {
        let metrics = Metrics::new().unwrap();
        let (_, store) = watch::channel(Standing::Unknown);
        let health = Health {
            metrics: metrics.clone(),
            stopping: Arc::default(),
            store,
        };
        let ready = (true, "ready\n".to_owned());
        assert_eq!(health.readiness(&Standing::Unknown), ready);
        assert_eq!(health.readiness(&Standing::Works), ready);

        let (is_ready, text) = health.readiness(&fails(Trouble::Unreachable));
        assert!(is_ready, "{text}");
        assert!(
            text.starts_with("ready\nstore away (unreachable)"),
            "{text}"
        );

        let (is_ready, text) = health.readiness(&fails(Trouble::AccessDenied));
        assert!(!is_ready, "{text}");
        assert!(text.contains("store refused (access_denied)"), "{text}");
        assert!(text.contains("s3:PutObject"), "{text}");
        assert!(!text.contains("words of its own"), "{text}");

        metrics.panics().note(Task::Upload);
        let (is_ready, text) = health.readiness(&Standing::Works);
        assert!(!is_ready, "{text}");
        assert!(text.contains("the upload task panicked"), "{text}");
        metrics.panics().works(Task::Upload);
        assert_eq!(health.readiness(&Standing::Works), ready);

        health.stopping.store(true, Ordering::Relaxed);
        assert!(!health.readiness(&Standing::Works).0);
    }
}
