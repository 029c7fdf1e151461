//! Serves routes over HTTP/1 to whoever connects, within bounds.
//!
//! Invariant: at most [`MAX_CONNECTIONS`] are open, and clients that are slow or silent keep nobody
//! else from being answered: the one that kept the program waiting longest makes room.

mod seats;

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::service::{Service, service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::seats::{Answer, Arrivals, Limits, Seats};
use crate::panics::{Panics, Task};

/// A browser opens six, a probe and a scraper one each.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// For a request's head, between two requests, and for a client to read a page when others want its
/// seat.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same for a response that is made within milliseconds and fits into the buffers of a
/// connection: probes give up after ten seconds.
const PROBES_PATIENCE: Duration = Duration::from_secs(1);
/// A request is on its way for less time than this, also if the CPU quota is used up.
const ON_ITS_WAY: Duration = Duration::from_millis(50);
/// A first request that has come is read within this, also if many others are answered before.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// Of a request's head; hyper takes no less.
const BUFFER_BYTES: usize = 16 * 1024;
/// After a failure to accept, which is for want of file descriptors or memory.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a listener is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// One request after the other, and responses that take their time.
    People,
    /// One request per connection, and a short response: of requests that were sent at once, the
    /// first is answered.
    Probes,
}

impl For {
    const fn task(self) -> Task {
        match self {
            Self::People => Task::Viewer,
            Self::Probes => Task::Metrics,
        }
    }

    /// After this long a response that its client does not read is stuck.
    pub(crate) const fn stuck_after(self) -> Duration {
        match self {
            Self::People => PATIENCE,
            Self::Probes => PROBES_PATIENCE,
        }
    }
}

/// Answers requests until told to stop, and finishes those under way.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    whom: For,
    panics: Panics,
    stop: CancellationToken,
) -> io::Result<()> {
    let limits = Limits {
        slow_after: ON_ITS_WAY,
        read_within: READ_WITHIN,
        stuck_after: whom.stuck_after(),
    };
    let seats = Seats::new(MAX_CONNECTIONS, limits);
    let open = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .keep_alive(matches!(whom, For::People))
        .header_read_timeout(PATIENCE)
        .max_buf_size(BUFFER_BYTES);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_of_the_client(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(RETRY_AFTER).await;
                continue;
            }
        };
        let seated = tokio::select! {
            seated = seats.take(Arrivals::on(&stream)) => Arc::new(seated),
            () = stop.cancelled() => break,
        };
        let (seat, routes) = (Arc::clone(&seated), routes.clone());
        let service = service_fn(move |request| {
            let answering = Some(seat.answer());
            let answer = TowerToHyperService::new(routes.clone()).call(request);
            async move {
                let answer = answer.await;
                answer.map(|answer| answer.map(|body| Answer { body, answering }))
            }
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let connection = open.watch(connection);
        let witness = panics.witness(whom.task());
        connections.spawn(async move {
            let _witness = witness;
            tokio::select! {
                // A client that goes away or sends nonsense is its own trouble.
                _ = connection => {}
                () = seated.evicted() => tracing::debug!("closed a connection to make room"),
            }
        });
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}

/// It went away before it was accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "servers and clients of tests belong to no stage"
)]
mod tests {
    use axum::routing::get;
    use bytes::Bytes;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        sync::Semaphore,
        task::JoinSet,
        time::timeout,
    };

    use super::*;

    const ASKED: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    async fn served(routes: Router) -> (std::net::SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let panics = Panics::default();
        tokio::spawn(serve(listener, routes, For::People, panics, stop.clone()));
        (address, stop)
    }

    fn hello() -> Router {
        Router::new().route("/", get(|| async { "hello" }))
    }

    async fn answer(address: std::net::SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(ASKED).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn clients_that_are_silent_or_slow_keep_nobody_out() {
        let (address, _stop) = served(hello()).await;
        for sent in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
            let mut others = Vec::new();
            for _ in 0..3 * MAX_CONNECTIONS {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(sent.as_bytes()).await.unwrap();
                others.push(stream);
            }
            for _ in 0..3 {
                assert!(answer(address).await.ends_with("hello"), "{sent}");
            }
        }
    }

    #[tokio::test]
    async fn those_who_do_not_read_their_response_keep_nobody_out_for_long() {
        let much = Bytes::from(vec![b'x'; 16 << 20]);
        let routes = hello().route("/much", get(|| async { much }));
        let (address, _stop) = served(routes).await;
        let mut others = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let asked = b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n";
            stream.write_all(asked).await.unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).await.unwrap();
            others.push(stream);
        }
        tokio::time::pause();
        assert!(answer(address).await.ends_with("hello"));
    }

    #[tokio::test]
    async fn nobody_who_is_being_answered_makes_room() {
        let (asked, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (seen, waits) = (Arc::clone(&asked), Arc::clone(&go_on));
        let routes = Router::new().route(
            "/",
            get(async move || {
                seen.add_permits(1);
                waits.acquire().await.unwrap().forget();
                "hello"
            }),
        );
        let (address, _stop) = served(routes).await;
        let mut answers = JoinSet::new();
        for _ in 0..MAX_CONNECTIONS {
            answers.spawn(answer(address));
            asked.acquire().await.unwrap().forget();
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        late.write_all(ASKED).await.unwrap();
        tokio::time::pause();
        tokio::time::sleep(PATIENCE / 2).await;
        tokio::time::resume();
        go_on.add_permits(MAX_CONNECTIONS + 1);
        while let Some(answer) = answers.join_next().await {
            assert!(answer.unwrap().ends_with("hello"));
        }
        let mut answer = String::new();
        late.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("hello"));
    }

    #[tokio::test]
    async fn whoever_never_finishes_asking_is_let_go() {
        let (address, _stop) = served(hello()).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HT").await.unwrap();
        assert!(answer(address).await.ends_with("hello"));
        tokio::time::pause();
        let mut rest = Vec::new();
        timeout(2 * PATIENCE, slow.read_to_end(&mut rest))
            .await
            .expect("it is let go")
            .unwrap();
    }

    #[tokio::test]
    async fn stopping_waits_for_nobody_who_asks_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let panics = Panics::default();
        let serving = serve(listener, Router::new(), For::People, panics, stop.clone());
        let serving = tokio::spawn(serving);
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 12];
        idle.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 404");
        stop.cancel();
        let stopped = timeout(Duration::from_secs(20), serving).await;
        stopped.expect("it stops").unwrap().unwrap();
    }
}
