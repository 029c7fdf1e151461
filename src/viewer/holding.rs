//! What answers hold while clients read them.
//!
//! A client that reads slowly, or not at all, keeps what was made for it in memory, and there are
//! many connections. Invariant: all large bodies together take no more than [`MAX_BODY_BYTES`], and
//! so few documents are streamed at once that their decompressors don't add up. Whoever finds no
//! room waits for it a while; what was not read in time makes room first.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody as _};
use futures_util::{Stream, StreamExt as _};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};

/// Of bodies that wait for their clients.
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Smaller ones are not counted: all connections together could hold 4 MiB of them.
const SMALL_BYTES: u64 = 64 * 1024;
/// What is handed over at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Documents that are decompressed at once, with up to 8 MiB each.
const MAX_STREAMS: usize = 2;
/// A client that has not read on for so long gives way to others.
const PATIENCE: Duration = Duration::from_secs(20);

/// A body could not be read in time, and was given up.
#[derive(Debug, thiserror::Error)]
#[error("the client read too slowly")]
pub(super) struct GivenUp;

/// What is held for clients.
#[derive(Debug)]
pub(super) struct Bodies {
    /// In units of a KiB.
    room: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    held: Mutex<Vec<Weak<Held>>>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MAX_BODY_BYTES / 1024)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            held: Mutex::default(),
        }
    }
}

impl Bodies {
    /// The same body, with room for it; waits for that, until then.
    pub(super) async fn hold(&self, body: Body, until: Instant) -> Option<Body> {
        let hint = body.size_hint();
        let size = match hint.exact() {
            Some(size) if size > SMALL_BYTES => usize::try_from(size).ok()?,
            // It is small, or streamed and held otherwise.
            _ => return Some(body),
        };
        let units = u32::try_from(size.min(MAX_BODY_BYTES).div_ceil(1024)).ok()?;
        let permit = self.wait(&self.room, units, until).await?;
        let bytes = axum::body::to_bytes(body, usize::MAX).await.ok()?;
        let pieces = futures_util::stream::unfold(bytes, |mut bytes| async {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            (!piece.is_empty()).then_some((Ok(piece), bytes))
        });
        Some(self.give(pieces.boxed(), permit))
    }

    /// Waits until few enough documents are streamed, until then.
    pub(super) async fn take_stream(&self, until: Instant) -> Option<StreamTurn> {
        self.wait(&self.streams, 1, until).await.map(StreamTurn)
    }

    /// A body that is made as it is read.
    pub(super) fn stream<S>(&self, pieces: S, turn: StreamTurn) -> Body
    where
        S: Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
    {
        self.give(pieces.boxed(), turn.0)
    }

    fn give(&self, pieces: Pieces, permit: OwnedSemaphorePermit) -> Body {
        let held = Arc::new(Held(Mutex::new(Some(Holding {
            pieces,
            _permit: permit,
            read_at: Instant::now(),
        }))));
        let mut all = self.all();
        all.retain(|held| held.strong_count() > 0);
        all.push(Arc::downgrade(&held));
        Body::from_stream(Reading(held))
    }

    async fn wait(
        &self,
        room: &Arc<Semaphore>,
        units: u32,
        until: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(room).acquire_many_owned(units);
        let mut permit = std::pin::pin!(permit);
        loop {
            // NOTE: looked at again each time, since a body can be too old only later.
            let next = self.give_up_slow().min(until);
            tokio::select! {
                // It is never closed.
                permit = &mut permit => return permit.ok(),
                () = sleep_until(next) => if next >= until {
                    return None;
                },
            }
        }
    }

    /// Gives up what nobody reads; tells when the next of it may be.
    fn give_up_slow(&self) -> Instant {
        let now = Instant::now();
        let mut next = now + PATIENCE;
        for held in self.all().iter().filter_map(Weak::upgrade) {
            let mut holding = held.holding();
            match &*holding {
                Some(held) if held.read_at + PATIENCE <= now => *holding = None,
                Some(held) => next = next.min(held.read_at + PATIENCE),
                None => {}
            }
        }
        next
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Allows to decompress one document.
#[derive(Debug)]
pub(super) struct StreamTurn(OwnedSemaphorePermit);

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>;

/// A body, until it is read or given up.
struct Held(Mutex<Option<Holding>>);

struct Holding {
    pieces: Pieces,
    _permit: OwnedSemaphorePermit,
    /// When the client was last ready for more.
    read_at: Instant,
}

impl Held {
    fn holding(&self) -> MutexGuard<'_, Option<Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Held")
    }
}

/// A body on its way to a client.
struct Reading(Arc<Held>);

impl Stream for Reading {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut holding = self.0.holding();
        let Some(held) = &mut *holding else {
            return Poll::Ready(Some(Err(axum::Error::new(GivenUp))));
        };
        held.read_at = Instant::now();
        held.pieces.as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    async fn read(body: Body) -> Result<Bytes, axum::Error> {
        axum::body::to_bytes(body, usize::MAX).await
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_wait_for_room_and_make_room_once_they_are_read() {
        let bodies = Bodies::default();
        let large = || Body::from(vec![7; MAX_BODY_BYTES / 2]);
        let first = bodies.hold(large(), soon()).await.unwrap();
        let second = bodies.hold(large(), soon()).await.unwrap();
        assert!(bodies.hold(large(), soon()).await.is_none());
        let small = Body::from(vec![7; 1000]);
        assert!(bodies.hold(small, soon()).await.is_some());
        assert_eq!(read(first).await.unwrap().len(), MAX_BODY_BYTES / 2);
        assert!(bodies.hold(large(), soon()).await.is_some());
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_larger_than_all_room_takes_all_of_it() {
        let bodies = Bodies::default();
        let huge = Body::from(vec![7; 2 * MAX_BODY_BYTES]);
        let body = bodies.hold(huge, soon()).await.unwrap();
        assert_eq!(read(body).await.unwrap().len(), 2 * MAX_BODY_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_reads_is_given_up_for_others() {
        let bodies = Bodies::default();
        let large = || Body::from(vec![7; MAX_BODY_BYTES]);
        let unread = bodies.hold(large(), soon()).await.unwrap();
        let mut slow = Vec::new();
        for _ in 0..MAX_STREAMS {
            let endless = futures_util::stream::repeat_with(|| Ok(Bytes::from_static(b"x")));
            let turn = bodies.take_stream(soon()).await.unwrap();
            slow.push(bodies.stream(endless, turn));
        }
        let patient = Instant::now() + 2 * PATIENCE;
        let next = bodies.hold(large(), patient).await.unwrap();
        assert_eq!(read(next).await.unwrap().len(), MAX_BODY_BYTES);
        let error = read(unread).await.unwrap_err();
        assert!(error.to_string().contains("too slowly"), "{error}");
        let one = futures_util::stream::iter([Ok(Bytes::from_static(b"x"))]);
        let patient = Instant::now() + 2 * PATIENCE;
        let turn = bodies.take_stream(patient).await.unwrap();
        let body = bodies.stream(one, turn);
        assert_eq!(read(body).await.unwrap(), "x");
    }
}
