//! Accepts connections, up to a limit.
//!
//! Invariant: connections that nobody uses, or whose clients don't finish what they send, keep
//! nobody out. Core has one; a client whose connection was closed connects again when it has
//! something to send.

use std::{io, os::unix::net::UnixListener, sync::Arc, time::Duration};

use futures_util::{Stream, stream};
use tokio::time::sleep;

use super::{budget::Budget, connection::Connection};
use crate::panics::{Panics, Task};

/// A client that has nothing to send for this long may connect again when it has.
const IDLE_AFTER: Duration = Duration::from_millis(100);
/// A client that sends nothing complete for this long, ten times what core waits for an answer, is
/// not core.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Until one that was told to close has done so, or until a call has ended.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// After a failure to accept, which is for want of file descriptors or memory.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Connections, as they come; so many at once.
pub(super) fn connections(
    listener: UnixListener,
    budget: Arc<Budget>,
    max: usize,
    panics: Panics,
) -> io::Result<impl Stream<Item = io::Result<Connection>>> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    Ok(stream::unfold(listener, move |listener| {
        let (budget, panics) = (Arc::clone(&budget), panics.clone());
        async move {
            let connection = accept(&listener, &budget, max, &panics).await;
            Some((Ok(connection), listener))
        }
    }))
}

async fn accept(
    listener: &tokio::net::UnixListener,
    budget: &Arc<Budget>,
    max: usize,
    panics: &Panics,
) -> Connection {
    loop {
        let connection = match listener.accept().await {
            Ok((stream, _)) => {
                make_room(budget, max).await;
                Connection::new(stream, budget.account(), panics.witness(Task::Receive))
            }
            Err(error) => Err(error),
        };
        match connection {
            Ok(connection) => return connection,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                budget.evict_idle(Duration::ZERO);
                sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Returns once there is room for one more connection.
async fn make_room(budget: &Budget, max: usize) {
    while budget.connections() >= max {
        if budget.evict_idle(IDLE_AFTER) {
            tracing::debug!("closed an idle connection to make room");
        } else if budget.evict_slow(SLOW_AFTER) {
            tracing::debug!("closed the connection of a slow client to make room");
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{super::budget::Account, *};

    /// What a connection does while it is served.
    async fn read_all(mut connection: Connection) -> io::Result<usize> {
        connection.read_to_end(&mut Vec::new()).await
    }

    #[tokio::test]
    async fn a_panic_in_the_task_of_a_connection_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let panics = Panics::default();
        let connections = connections(listener, Budget::new(1), 2, panics.clone()).unwrap();
        let mut connections = Box::pin(connections);
        let _client = tokio::net::UnixStream::connect(&path).await.unwrap();
        let connection = connections.next().await.unwrap().unwrap();
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(async move {
            let _connection = connection;
            panic!("in a test");
        });
        let ended: Result<(), _> = serving.join_next().await.unwrap();
        assert!(ended.is_err());
        assert!(panics.broken().eq([Task::Receive]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_is_idle_longest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let budget = Budget::new(1);
        let panics = Panics::default();
        let connections = connections(listener, Arc::clone(&budget), 2, panics).unwrap();
        let mut connections = Box::pin(connections);
        let connect = async || {
            sleep(Duration::from_secs(1)).await;
            tokio::net::UnixStream::connect(&path).await.unwrap()
        };
        let (_first, busy) = (connect().await, connections.next().await.unwrap().unwrap());
        let account: Arc<Account> = Arc::clone(busy.account());
        let call = account.call();
        let mut reading = tokio::task::JoinSet::new();
        reading.spawn(read_all(busy));
        let _second = connect().await;
        let idle = connections.next().await.unwrap().unwrap();
        reading.spawn(read_all(idle));
        // Nobody is idle but the second one, whatever comes.
        let mut third = connect().await;
        let newest = connections.next().await.unwrap().unwrap();
        let evicted = reading.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(evicted.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(budget.connections(), 2);
        third.write_all(b"x").await.unwrap();
        drop((third, call));
        assert_eq!(read_all(newest).await.unwrap(), 1);
    }
}
