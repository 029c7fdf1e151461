//! A connection from core, with few system calls.
//!
//! Whenever core takes an answer off its socket, the kernel tells those who wait to write to it
//! that there is room. Tokio's own streams always do, so that up to two of three wake-ups were for
//! nothing. And HTTP/2 reads a frame in pieces of 8 KiB. A server that keeps nothing took 14 % less
//! CPU with this, at 64 KiB and one caller.
//!
//! Invariant: writing is waited for only while the socket is full. What was read from the socket is
//! handed on before more is read, and nothing is read beyond the budget. A connection on which
//! nothing happens has no buffer.

use std::{
    io::{self, IoSlice, Read as _, Write as _},
    net::Shutdown,
    ops::Range,
    os::unix::net::UnixStream,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    time::Sleep,
};
use tonic::transport::server::Connected;

use super::{admission::CameOn, budget::Account};
use crate::panics::Witness;

/// How long a connection waits for its turn before the books are checked.
const SWEEP_AFTER: Duration = Duration::from_millis(100);

/// A connection from core.
#[derive(Debug)]
pub(super) struct Connection {
    socket: AsyncFd<UnixStream>,
    /// While the socket is full.
    room: Option<AsyncFd<UnixStream>>,
    account: Arc<Account>,
    /// While there is something in it.
    buffer: Option<Box<[u8]>>,
    /// What of the buffer was not handed on yet.
    unread: Range<usize>,
    /// While it is not the turn of this connection to read.
    blocked: Option<Pin<Box<Sleep>>>,
    /// HTTP/2 is spoken in tasks of a library.
    _witness: Witness,
}

impl Connection {
    pub(super) fn new(
        accepted: tokio::net::UnixStream,
        account: Arc<Account>,
        witness: Witness,
    ) -> io::Result<Self> {
        let socket = watch(accepted.into_std()?, Interest::READABLE)?;
        Ok(Self {
            socket,
            room: None,
            account,
            buffer: None,
            unread: 0..0,
            blocked: None,
            _witness: witness,
        })
    }

    #[cfg(test)]
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Reads from the socket once there is something, and once there is room for it.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.account.is_evicted() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            let Poll::Ready(ready) = self.socket.poll_read_ready(context) else {
                self.account.wait_for_client(context);
                return Poll::Pending;
            };
            let mut ready = ready?;
            let allowed = ready!(poll_turn(&self.account, &mut self.blocked, context));
            let mut buffer = self.account.budget().take_buffer();
            let room = buffer.get_mut(..allowed).unwrap_or_default();
            match self.socket.get_ref().read(room) {
                Ok(bytes) => {
                    // Less than there was room for: that was all, and no need to ask again.
                    if bytes > 0 && bytes < allowed {
                        ready.clear_ready();
                    }
                    self.account.read(bytes);
                    self.buffer = Some(buffer);
                    self.unread = 0..bytes;
                    return Poll::Ready(Ok(()));
                }
                Err(error) => {
                    self.account.budget().give_back_buffer(buffer);
                    match error.kind() {
                        io::ErrorKind::WouldBlock => ready.clear_ready(),
                        io::ErrorKind::Interrupted => {}
                        _ => return Poll::Ready(Err(error)),
                    }
                }
            }
        }
    }

    /// Writes at once, or once there is room.
    fn poll_out(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // NOTE: a client that does not read its answers is not read from either.
            if self.account.is_evicted() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            if let Some(room) = &self.room {
                ready!(room.poll_write_ready(context))?.clear_ready();
            }
            match write(self.socket.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.room.is_none() {
                        let socket = self.socket.get_ref().try_clone()?;
                        self.room = Some(watch(socket, Interest::WRITABLE)?);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    self.room = None;
                    return Poll::Ready(written);
                }
            }
        }
    }
}

/// Ready once this connection may read, with how much.
fn poll_turn(
    account: &Account,
    blocked: &mut Option<Pin<Box<Sleep>>>,
    context: &mut Context<'_>,
) -> Poll<usize> {
    loop {
        if let Poll::Ready(allowed) = account.poll_may_read(context) {
            *blocked = None;
            return Poll::Ready(allowed);
        }
        let sweep = blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep(SWEEP_AFTER)));
        ready!(sweep.as_mut().poll(context));
        *blocked = None;
        account.budget().sweep();
    }
}

#[expect(
    deprecated,
    reason = "what takes its place is unsafe, for the sake of types that close their descriptor early; this one never does"
)]
fn watch(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(socket, interest)
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            ready!(self.poll_fill(context))?;
        }
        let buffer = self.buffer.as_deref().unwrap_or_default();
        let unread = buffer.get(self.unread.clone()).unwrap_or_default();
        let bytes = unread.len().min(out.remaining());
        out.put_slice(unread.get(..bytes).unwrap_or_default());
        self.unread.start += bytes;
        if self.unread.is_empty()
            && let Some(buffer) = self.buffer.take()
        {
            self.account.budget().give_back_buffer(buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a short write is told to whoever writes"
        )]
        self.poll_out(context, |mut socket| socket.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(context, |mut socket| socket.write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.socket.get_ref();
        Poll::Ready(socket.shutdown(Shutdown::Write))
    }
}

impl Connected for Connection {
    type ConnectInfo = CameOn;

    fn connect_info(&self) -> CameOn {
        CameOn(Arc::clone(&self.account))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{super::budget::Budget, *};
    use crate::panics::{Panics, Task};

    /// More than both the socket and the buffer hold.
    const MUCH: usize = 4 * 1024 * 1024;

    fn pair() -> (Connection, tokio::net::UnixStream) {
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        let account = Budget::new(MUCH).account();
        let witness = Panics::default().witness(Task::Receive);
        (Connection::new(ours, account, witness).unwrap(), theirs)
    }

    fn pattern() -> Vec<u8> {
        (0..=250).cycle().take(MUCH).collect()
    }

    #[tokio::test]
    async fn what_is_sent_is_read_in_order_and_to_its_end() {
        let (mut connection, mut peer) = pair();
        let send = async {
            peer.write_all(&pattern()).await.unwrap();
            drop(peer);
        };
        let mut read = Vec::new();
        let ((), bytes) = tokio::join!(send, connection.read_to_end(&mut read));
        assert_eq!(bytes.unwrap(), MUCH);
        assert!(read == pattern());
    }

    #[tokio::test]
    async fn a_full_socket_is_waited_for_and_everything_arrives() {
        let (mut connection, mut peer) = pair();
        let mut read = Vec::new();
        let write = async {
            connection.write_all(&pattern()).await.unwrap();
            assert!(connection.room.is_none());
            connection.shutdown().await.unwrap();
        };
        let ((), bytes) = tokio::join!(write, peer.read_to_end(&mut read));
        assert_eq!(bytes.unwrap(), MUCH);
        assert!(read == pattern());
    }

    #[tokio::test]
    async fn who_reads_waits_while_nothing_comes_and_goes_on_when_something_does() {
        let (mut connection, mut peer) = pair();
        for word in [&b"one"[..], b"two"] {
            let mut read = vec![0; word.len()];
            let send = async {
                // The other side is asked first, and has nothing.
                tokio::task::yield_now().await;
                peer.write_all(word).await.unwrap();
            };
            let (read_bytes, ()) = tokio::join!(connection.read_exact(&mut read), send);
            assert_eq!(read_bytes.unwrap(), word.len());
            assert_eq!(read, word);
        }
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_an_error_for_who_writes() {
        let (mut connection, peer) = pair();
        drop(peer);
        let error = connection.write_all(&pattern()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
