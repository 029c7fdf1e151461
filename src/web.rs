//! Serves routes over HTTP/1 to whoever connects, within bounds.
//!
//! Invariant: at most [`MAX_CONNECTIONS`] are open, and none stays open for a client that does not
//! finish its request: neither very many nor very slow ones take memory from the rest.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A browser opens six, a probe and a scraper one each. Others wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// For a request's head, and between two requests.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of a request's head; hyper takes no less.
const BUFFER_BYTES: usize = 16 * 1024;
/// After a failure to accept, which is for want of file descriptors or memory.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Answers requests until told to stop, and finishes those under way.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let open = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(BUFFER_BYTES);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &seats) => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, seat) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_the_client(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(RETRY_AFTER).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(routes.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let connection = open.watch(connection);
        connections.spawn(async move {
            // A client that goes away or sends nonsense is its own trouble.
            drop(connection.await);
            drop(seat);
        });
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await;
    let seat = seat.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, seat))
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
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::timeout,
    };

    use super::*;

    const ASKED: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    async fn served() -> (std::net::SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let routes = Router::new().route("/", get(|| async { "hello" }));
        tokio::spawn(serve(listener, routes, stop.clone()));
        (address, stop)
    }

    async fn answer(mut stream: TcpStream) -> String {
        stream.write_all(ASKED).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn more_than_can_sit_wait_for_a_seat() {
        let (address, _stop) = served().await;
        let mut idle = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let late = tokio::spawn(answer(TcpStream::connect(address).await.unwrap()));
        sleep(Duration::from_millis(200)).await;
        assert!(!late.is_finished());
        idle.pop();
        assert!(late.await.unwrap().ends_with("hello"));
    }

    #[tokio::test]
    async fn whoever_never_finishes_asking_is_let_go() {
        let (address, _stop) = served().await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HT").await.unwrap();
        assert!(
            answer(TcpStream::connect(address).await.unwrap())
                .await
                .ends_with("hello")
        );
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
        let serving = tokio::spawn(serve(listener, Router::new(), stop.clone()));
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
