//! Bytes of messages that may be in memory, and who gets them next.
//!
//! Invariants: what was given out is within the limit, or is one message that is larger on its own;
//! every message gets its turn. Whoever waits is served in this order: clients that were never slow
//! before those that were, a client that holds less before one that holds more, then by arrival. So
//! neither a client that sends much nor one that does not finish what it sends keeps others out.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::sync::oneshot;

/// What clients have bytes of.
#[derive(Debug)]
pub(super) struct Pool {
    limit: usize,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    given: usize,
    arrivals: u64,
    line: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    bytes: usize,
    client: Arc<Client>,
    sender: oneshot::Sender<Funds>,
}

/// What is known of a client.
#[derive(Debug)]
pub(super) struct Client {
    repute: AtomicU8,
    /// Of the bytes of all pools.
    held: AtomicUsize,
}

/// How a client behaved until now; the better comes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Repute {
    /// Its last message arrived.
    Good,
    /// It has sent nothing yet.
    New,
    /// Its last message did not arrive in time.
    Slow,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            repute: AtomicU8::new(Repute::New as u8),
            held: AtomicUsize::new(0),
        }
    }
}

impl Client {
    pub(super) fn repute(&self) -> Repute {
        let repute = self.repute.load(Ordering::Relaxed);
        let known = [Repute::Good, Repute::New];
        let known = known.into_iter().find(|known| *known as u8 == repute);
        known.unwrap_or(Repute::Slow)
    }

    pub(super) fn set_repute(&self, repute: Repute) {
        self.repute.store(repute as u8, Ordering::Relaxed);
    }
}

impl Pool {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            books: Mutex::default(),
        })
    }

    /// So many bytes, if there is room now and nobody waits for it.
    pub(super) fn try_take(self: &Arc<Self>, client: &Arc<Client>, bytes: usize) -> Option<Funds> {
        let mut books = self.lock();
        let bytes = bytes.min(self.limit);
        if !books.line.is_empty() || !self.has_room(&books, bytes) {
            return None;
        }
        Some(self.give(&mut books, client, bytes))
    }

    /// So many bytes, in turn.
    pub(super) fn take(self: &Arc<Self>, client: &Arc<Client>, bytes: usize) -> Turn {
        let (sender, receiver) = oneshot::channel();
        let mut books = self.lock();
        books.arrivals += 1;
        let number = books.arrivals;
        books.line.push(Waiter {
            number,
            bytes: bytes.min(self.limit),
            client: Arc::clone(client),
            sender,
        });
        self.serve(&mut books);
        drop(books);
        Turn {
            pool: Arc::clone(self),
            number,
            receiver,
        }
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.lock().line.is_empty()
    }

    fn has_room(&self, books: &Books, bytes: usize) -> bool {
        books.given == 0 || books.given + bytes <= self.limit
    }

    fn give(self: &Arc<Self>, books: &mut Books, client: &Arc<Client>, bytes: usize) -> Funds {
        books.given += bytes;
        client.held.fetch_add(bytes, Ordering::Relaxed);
        Funds {
            pool: Arc::clone(self),
            client: Arc::clone(client),
            bytes,
        }
    }

    /// Gives to those who wait what there is.
    fn serve(self: &Arc<Self>, books: &mut Books) {
        loop {
            let in_line = books.line.iter().enumerate();
            let next = in_line.min_by_key(|(_, waiter)| {
                let held = waiter.client.held.load(Ordering::Relaxed);
                (waiter.client.repute(), held, waiter.number)
            });
            // NOTE: nobody passes the next one, who would else wait for as long as others come.
            let Some((place, waiter)) = next else { return };
            if !self.has_room(books, waiter.bytes) {
                return;
            }
            let waiter = books.line.swap_remove(place);
            let funds = self.give(books, &waiter.client, waiter.bytes);
            if let Err(mut unwanted) = waiter.sender.send(funds) {
                // NOTE: these books are locked; they can't be dropped as others are.
                books.given -= unwanted.write_off();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a pool, for as long as this lives.
#[derive(Debug)]
pub(super) struct Funds {
    pool: Arc<Pool>,
    client: Arc<Client>,
    bytes: usize,
}

impl Funds {
    fn write_off(&mut self) -> usize {
        let bytes = std::mem::take(&mut self.bytes);
        self.client.held.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }
}

impl Drop for Funds {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let pool = Arc::clone(&self.pool);
            let mut books = pool.lock();
            books.given -= self.write_off();
            pool.serve(&mut books);
        }
    }
}

/// A place in the line. Whoever drops it leaves.
#[derive(Debug)]
pub(super) struct Turn {
    pool: Arc<Pool>,
    number: u64,
    receiver: oneshot::Receiver<Funds>,
}

impl Turn {
    /// Blocks the thread until it is its turn. None only if there is no pool any more.
    pub(super) fn wait(mut self) -> Option<Funds> {
        let (_, nobody) = oneshot::channel();
        std::mem::replace(&mut self.receiver, nobody)
            .blocking_recv()
            .ok()
    }
}

impl Future for Turn {
    /// None only if there is no pool any more.
    type Output = Option<Funds>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Funds>> {
        Pin::new(&mut self.receiver).poll(context).map(Result::ok)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut books = self.pool.lock();
        books.line.retain(|waiter| waiter.number != self.number);
        // It may have been the one that the others waited behind.
        self.pool.serve(&mut books);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn of(repute: Repute) -> Arc<Client> {
        let client = Arc::new(Client::default());
        client.set_repute(repute);
        client
    }

    fn granted(turn: &mut Turn) -> Option<Funds> {
        turn.now_or_never().flatten()
    }

    #[test]
    fn those_who_wait_are_served_by_repute_then_by_what_they_hold_then_by_arrival() {
        let pool = Pool::new(4);
        let [slow, new, good] = [Repute::Slow, Repute::New, Repute::Good].map(of);
        let held = pool.try_take(&good, 1).unwrap();
        let all = pool.try_take(&slow, 3).unwrap();
        let also_good = of(Repute::Good);
        let waiting = [&slow, &new, &good, &good, &also_good];
        let mut turns = waiting.map(|client| Some(pool.take(client, 3)));
        let mut last = all;
        for expected in [4, 2, 3, 1, 0] {
            assert!(
                turns
                    .iter_mut()
                    .flatten()
                    .all(|turn| granted(turn).is_none())
            );
            drop(last);
            let mut turn = turns[expected].take().unwrap();
            last = granted(&mut turn).expect("its turn");
        }
        drop((last, held));
        assert_eq!(pool.lock().given, 0);
    }

    #[test]
    fn one_client_that_sends_much_leaves_room_for_another() {
        let pool = Pool::new(4);
        let [greedy, modest] = [(); 2].map(|()| of(Repute::Good));
        let mut held: Vec<_> = (0..4).filter_map(|_| pool.try_take(&greedy, 1)).collect();
        let mut more: Vec<_> = (0..100).map(|_| pool.take(&greedy, 1)).collect();
        let mut one = pool.take(&modest, 1);
        held.pop();
        assert!(granted(&mut one).is_some());
        assert!(more.iter_mut().any(|turn| granted(turn).is_some()));
    }

    #[test]
    fn who_leaves_the_line_keeps_nobody_waiting() {
        let pool = Pool::new(4);
        let client = of(Repute::New);
        let held = pool.try_take(&client, 2).unwrap();
        let large = pool.take(&client, 3);
        let mut small = pool.take(&client, 1);
        assert!(granted(&mut small).is_none(), "nobody is passed");
        drop(large);
        let taken = granted(&mut small).expect("there is room");
        drop((held, taken));
        // One who was served and did not look.
        let unseen = pool.take(&client, 4);
        drop(unseen);
        assert!(pool.try_take(&client, 4).is_some());
        assert_eq!(pool.lock().given, 0);
        assert_eq!(client.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_larger_than_the_pool_comes_in_alone() {
        let pool = Pool::new(4);
        let client = of(Repute::New);
        let small = pool.try_take(&client, 1).unwrap();
        let mut large = pool.take(&client, 9);
        assert!(granted(&mut large).is_none());
        drop(small);
        let large = granted(&mut large).expect("alone");
        assert!(pool.try_take(&client, 1).is_none());
        drop(large);
        assert!(pool.try_take(&client, 1).is_some());
    }
}
