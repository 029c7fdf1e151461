//! Who may stay connected when more want to than there is room for.
//!
//! Invariant: a newcomer takes the seat of the connection that has waited longest for its client:
//! to send a request, or to read a response that is stuck. Nobody loses a seat while the program
//! is the one that takes its time, be it to answer a request or to notice that one has come. So a
//! probe gets in however many clients are slow or silent.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use rustix::io::ioctl_fionread;
use tokio::{net::TcpStream, sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// How long everybody may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Before that the client's request may be on its way.
    pub(super) slow_after: Duration,
    /// For the program to read a first request that has come, if it is busy with others.
    pub(super) read_within: Duration,
    /// After this long a response is taken to be stuck: its client does not read it.
    pub(super) stuck_after: Duration,
}

/// All seats, taken or not.
#[derive(Debug)]
pub(super) struct Seats {
    count: usize,
    limits: Limits,
    taken: Mutex<Vec<Arc<Seat>>>,
    /// Someone left, or waits for its client from now on.
    changed: Notify,
}

/// The seat of one connection.
#[derive(Debug)]
struct Seat {
    turn: Mutex<Turn>,
    arrivals: Arc<Arrivals>,
    evicted: CancellationToken,
}

/// Who is expected to do something, and since when.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The client is to send its first request, or the program to read it.
    New(Instant),
    /// The client is to send another request.
    Client(Instant),
    /// The program is to answer one, or the client to read the response.
    Program(Instant),
}

/// Whether a client has sent something that was not read yet.
#[derive(Debug)]
pub(super) enum Arrivals {
    /// In this socket.
    In(OwnedFd),
    Unknown,
    #[cfg(test)]
    Some,
}

impl Arrivals {
    pub(super) fn on(stream: &TcpStream) -> Self {
        let socket = stream.as_fd().try_clone_to_owned();
        socket.map_or(Self::Unknown, Self::In)
    }

    fn are_there(&self) -> bool {
        match self {
            Self::In(socket) => ioctl_fionread(socket).is_ok_and(|bytes| bytes > 0),
            Self::Unknown => false,
            #[cfg(test)]
            Self::Some => true,
        }
    }
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
    pub(super) fn new(count: usize, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            count,
            limits,
            taken: Mutex::new(Vec::new()),
            changed: Notify::new(),
        })
    }

    /// Returns once there is a seat.
    pub(super) async fn take(self: &Arc<Self>, arrivals: Arrivals) -> Seated {
        let arrivals = Arc::new(arrivals);
        loop {
            let changed = self.changed.notified();
            let next_look = match self.try_take(&arrivals) {
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
    fn try_take(self: &Arc<Self>, arrivals: &Arc<Arrivals>) -> Result<Seated, Instant> {
        let now = Instant::now();
        let mut taken = self.lock();
        if taken.len() >= self.count {
            let turns = taken
                .iter()
                .enumerate()
                .map(|(place, seat)| (seat.evictable_from(self.limits, now), place));
            let Some((evictable_from, place)) = turns.min() else {
                return Err(now + self.limits.stuck_after);
            };
            if evictable_from > now {
                return Err(evictable_from);
            }
            taken.swap_remove(place).evicted.cancel();
        }
        let seat = Arc::new(Seat {
            turn: Mutex::new(Turn::New(now)),
            arrivals: Arc::clone(arrivals),
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
    fn evictable_from(&self, limits: Limits, now: Instant) -> Instant {
        match *self.lock() {
            // It did its part: the program is behind.
            Turn::New(since) if self.has_waited(since, limits, now) => since + limits.read_within,
            Turn::New(since) | Turn::Client(since) => since + limits.slow_after,
            Turn::Program(since) => since + limits.stuck_after,
        }
    }

    /// Its first request would have been read, were the program not busy.
    fn has_waited(&self, since: Instant, limits: Limits, now: Instant) -> bool {
        since + limits.slow_after <= now && self.arrivals.are_there()
    }

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
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const SLOW_AFTER: Duration = Duration::from_millis(50);
    const READ_WITHIN: Duration = Duration::from_secs(1);
    const STUCK_AFTER: Duration = Duration::from_secs(30);

    fn seats(count: usize) -> Arc<Seats> {
        let limits = Limits {
            slow_after: SLOW_AFTER,
            read_within: READ_WITHIN,
            stuck_after: STUCK_AFTER,
        };
        Seats::new(count, limits)
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
        let first = seats.take(Arrivals::Unknown).await;
        second().await;
        let longest = seats.take(Arrivals::Unknown).await;
        second().await;
        let third = seats.take(Arrivals::Unknown).await;
        // Answered: it waits for its client from now on.
        drop(first.answer());
        let newcomer = seats.take(Arrivals::Unknown).await;
        assert!(is_evicted(&longest));
        assert!([&first, &third, &newcomer].iter().all(|it| !is_evicted(it)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_may_be_on_its_way_is_waited_for() {
        let seats = seats(1);
        let first = seats.take(Arrivals::Unknown).await;
        let begun = Instant::now();
        let second = seats.take(Arrivals::Unknown).await;
        assert_eq!(begun.elapsed(), SLOW_AFTER);
        assert!(is_evicted(&first) && !is_evicted(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_has_come_is_read_before_its_client_leaves() {
        let seats = seats(1);
        let first = seats.take(Arrivals::Some).await;
        let begun = Instant::now();
        let second = seats.take(Arrivals::Unknown).await;
        assert_eq!(begun.elapsed(), READ_WITHIN);
        assert!(is_evicted(&first) && !is_evicted(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_sends_more_than_it_reads_gets_no_more_time_for_that() {
        let seats = seats(1);
        let first = seats.take(Arrivals::Some).await;
        drop(first.answer());
        let begun = Instant::now();
        let _second = seats.take(Arrivals::Unknown).await;
        assert_eq!(begun.elapsed(), SLOW_AFTER);
        assert!(is_evicted(&first));
    }

    #[tokio::test]
    async fn what_arrives_is_seen_in_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut served, _) = listener.accept().await.unwrap();
        let arrivals = Arrivals::on(&served);
        assert!(!arrivals.are_there());
        client.write_all(b"GET").await.unwrap();
        served.readable().await.unwrap();
        assert!(arrivals.are_there());
        let mut read = [0; 3];
        served.read_exact(&mut read).await.unwrap();
        assert!(!arrivals.are_there());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_leaves_while_it_is_answered_unless_that_is_stuck() {
        let seats = seats(1);
        let first = seats.take(Arrivals::Unknown).await;
        let answering = first.answer();
        let begun = Instant::now();
        let newcomer = seats.take(Arrivals::Unknown).await;
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
        let first = seats.take(Arrivals::Unknown).await;
        let answering = first.answer();
        let newcomer = seats.take(Arrivals::Unknown);
        let leaving = async {
            tokio::task::yield_now().await;
            drop(answering);
            drop(first);
        };
        let (newcomer, ()) = tokio::join!(newcomer, leaving);
        assert!(begun.elapsed().is_zero() && !is_evicted(&newcomer));
    }
}
