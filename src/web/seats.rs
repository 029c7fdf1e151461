//! Who may stay connected when more want to than there is room for.
//!
//! Invariant: a newcomer takes the seat of the connection that has waited longest for its client:
//! to send a request, or to read a response that is stuck. Nobody loses a seat while the program
//! is the one that takes its time. So a probe gets in however many clients are slow or silent.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// All seats, taken or not.
#[derive(Debug)]
pub(super) struct Seats {
    count: usize,
    /// Before that the client's request may be on its way.
    slow_after: Duration,
    /// After this long a response is taken to be stuck: its client does not read it.
    stuck_after: Duration,
    taken: Mutex<Vec<Arc<Seat>>>,
    /// Someone left, or waits for its client from now on.
    changed: Notify,
}

/// The seat of one connection.
#[derive(Debug)]
struct Seat {
    turn: Mutex<Turn>,
    evicted: CancellationToken,
}

/// Who is expected to do something, and since when.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The client is to send a request.
    Client(Instant),
    /// The program is to answer one, or the client to read the response.
    Program(Instant),
}

/// A seat for as long as this lives.
#[derive(Debug)]
pub(super) struct Seated {
    seat: Arc<Seat>,
    seats: Arc<Seats>,
}

/// A request that is being answered for as long as this lives.
#[derive(Debug)]
pub(super) struct Answering {
    seat: Arc<Seat>,
    seats: Arc<Seats>,
}

impl Seats {
    pub(super) fn new(count: usize, slow_after: Duration, stuck_after: Duration) -> Arc<Self> {
        Arc::new(Self {
            count,
            slow_after,
            stuck_after,
            taken: Mutex::new(Vec::new()),
            changed: Notify::new(),
        })
    }

    /// Returns once there is a seat.
    pub(super) async fn take(self: &Arc<Self>) -> Seated {
        loop {
            let changed = self.changed.notified();
            let next_look = match self.try_take() {
                Ok(seated) => return seated,
                Err(next_look) => next_look,
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(next_look) => {}
            }
        }
    }

    /// A seat; or, if nobody can be made to leave, when to look again.
    fn try_take(self: &Arc<Self>) -> Result<Seated, Instant> {
        let now = Instant::now();
        let mut taken = self.lock();
        if taken.len() >= self.count {
            let turns = taken.iter().enumerate().map(|(place, seat)| {
                let evictable_from = match *seat.lock() {
                    Turn::Client(since) => since + self.slow_after,
                    Turn::Program(since) => since + self.stuck_after,
                };
                (evictable_from, place)
            });
            let Some((evictable_from, place)) = turns.min() else {
                return Err(now + self.stuck_after);
            };
            if evictable_from > now {
                return Err(evictable_from);
            }
            taken.swap_remove(place).evicted.cancel();
        }
        let seat = Arc::new(Seat {
            turn: Mutex::new(Turn::Client(now)),
            evicted: CancellationToken::new(),
        });
        taken.push(Arc::clone(&seat));
        let seats = Arc::clone(self);
        Ok(Seated { seat, seats })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seated {
    /// Returns once the seat is someone else's.
    pub(super) async fn evicted(&self) {
        self.seat.evicted.cancelled().await;
    }

    /// A request has come.
    pub(super) fn answer(&self) -> Answering {
        *self.seat.lock() = Turn::Program(Instant::now());
        Answering {
            seat: Arc::clone(&self.seat),
            seats: Arc::clone(&self.seats),
        }
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        drop(taken);
        self.seats.changed.notify_one();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        *self.seat.lock() = Turn::Client(Instant::now());
        self.seats.changed.notify_one();
    }
}

/// A response's body, which ends the answering when all of it has been handed over.
#[derive(Debug)]
pub(super) struct Answer<B> {
    pub(super) body: B,
    pub(super) answering: Option<Answering>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.answering = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW_AFTER: Duration = Duration::from_millis(50);
    const STUCK_AFTER: Duration = Duration::from_secs(30);

    fn seats(count: usize) -> Arc<Seats> {
        Seats::new(count, SLOW_AFTER, STUCK_AFTER)
    }

    fn is_evicted(seated: &Seated) -> bool {
        seated.seat.evicted.is_cancelled()
    }

    async fn second() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_waited_longest_for_its_client_leaves() {
        let seats = seats(3);
        let first = seats.take().await;
        second().await;
        let longest = seats.take().await;
        second().await;
        let third = seats.take().await;
        // Answered: it waits for its client from now on.
        drop(first.answer());
        let newcomer = seats.take().await;
        assert!(is_evicted(&longest));
        assert!([&first, &third, &newcomer].iter().all(|it| !is_evicted(it)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_may_be_on_its_way_is_waited_for() {
        let seats = seats(1);
        let first = seats.take().await;
        let begun = Instant::now();
        let second = seats.take().await;
        assert_eq!(begun.elapsed(), SLOW_AFTER);
        assert!(is_evicted(&first) && !is_evicted(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_leaves_while_it_is_answered_unless_that_is_stuck() {
        let seats = seats(1);
        let first = seats.take().await;
        let answering = first.answer();
        let begun = Instant::now();
        let newcomer = seats.take().await;
        assert_eq!(begun.elapsed(), STUCK_AFTER);
        assert!(is_evicted(&first));
        // What the evicted one does from now on changes nothing for its successor.
        drop(answering);
        drop(first);
        assert!(!is_evicted(&newcomer));
        assert_eq!(seats.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_is_free_again_at_once() {
        let seats = seats(1);
        let begun = Instant::now();
        let first = seats.take().await;
        let answering = first.answer();
        let newcomer = seats.take();
        let leaving = async {
            tokio::task::yield_now().await;
            drop(answering);
            drop(first);
        };
        let (newcomer, ()) = tokio::join!(newcomer, leaving);
        assert!(begun.elapsed().is_zero() && !is_evicted(&newcomer));
    }
}
