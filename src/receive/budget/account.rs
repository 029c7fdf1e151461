//! What one connection takes of the budget: what was read of it and nobody has taken yet, its calls,
//! and since when it keeps the program waiting.
//!
//! Invariant: a connection that may not read is woken once it may.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::time::Instant;

use super::{
    super::{
        inspector::{CONNECTION_WINDOW, STREAM_WINDOW},
        pool::{Client, Funds, Turn},
    },
    Budget, READ_BYTES, SMALL_BYTES, TRICKLE, UNREAD_HIGH, UNREAD_LOW,
};

/// Of a frame. It is read, and nobody takes it.
const FRAME_HEAD_BYTES: usize = 9;
/// What a connection may have read in one go, of streams that nobody has looked at yet.
pub(super) const BURST: usize = 256 * 1024;

/// What one connection takes of it.
#[derive(Debug)]
pub(in crate::receive) struct Account {
    number: u64,
    budget: Arc<Budget>,
    pub(super) client: Arc<Client>,
    /// Read, and not yet handed on; an estimate that is never far below.
    unread: AtomicUsize,
    /// Those without an answer.
    pub(super) calls: AtomicUsize,
    /// Of these, those whose message is on its way.
    pub(super) open_calls: AtomicUsize,
    /// Of these, those that the client has to go on with.
    pub(super) calls_of_client: AtomicUsize,
    /// Those that have their part of the budget and are not complete.
    pub(super) funded_calls: AtomicUsize,
    is_blocked: AtomicBool,
    waiting: Mutex<Waiting>,
    evicted: AtomicBool,
}

/// What is known of a connection that waits, for its client or for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) since: Instant,
    waker: Option<Waker>,
    /// Since its last message arrived, or since the client had reason to begin one.
    pub(super) fruitless_since: Instant,
    /// A message has arrived since then, so that the next call begins anew.
    pub(super) was_fruitful: bool,
}

impl Account {
    pub(super) fn new(number: u64, budget: Arc<Budget>) -> Self {
        Self {
            number,
            budget,
            client: Arc::default(),
            unread: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            open_calls: AtomicUsize::new(0),
            calls_of_client: AtomicUsize::new(0),
            funded_calls: AtomicUsize::new(0),
            is_blocked: AtomicBool::new(false),
            waiting: Mutex::new(Waiting {
                since: Instant::now(),
                waker: None,
                fruitless_since: Instant::now(),
                was_fruitful: true,
            }),
            evicted: AtomicBool::new(false),
        }
    }

    pub(in crate::receive) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(in crate::receive) fn client(&self) -> &Client {
        &self.client
    }

    /// Room for a message of so many bytes, if there is now.
    pub(in crate::receive) fn try_fund(&self, bytes: usize) -> Option<Funds> {
        let Budget { small, large, .. } = &*self.budget;
        let in_small = || small.try_take(&self.client, bytes);
        let small = (bytes <= SMALL_BYTES).then(in_small).flatten();
        small.or_else(|| large.try_take(&self.client, bytes))
    }

    /// The same, in turn.
    pub(in crate::receive) fn fund(&self, bytes: usize) -> Turn {
        let Budget { small, large, .. } = &*self.budget;
        let pool = if bytes <= SMALL_BYTES { small } else { large };
        pool.take(&self.client, bytes)
    }

    /// Ready once the connection may read, with how much.
    pub(in crate::receive) fn poll_may_read(&self, context: &Context<'_>) -> Poll<usize> {
        let mut ledger = self.budget.lock();
        let unread = self.unread.load(Ordering::Relaxed);
        let allowed = if !ledger.is_closed {
            READ_BYTES
        } else if unread < TRICKLE {
            TRICKLE - unread
        } else if self.funded_calls.load(Ordering::Relaxed) > 0
            && *ledger.overdrawn.get_or_insert(self.number) == self.number
        {
            READ_BYTES
        } else {
            let waker = context.waker();
            if !ledger.blocked.iter().any(|known| known.will_wake(waker)) {
                ledger.blocked.push(waker.clone());
            }
            drop(ledger);
            if !self.is_blocked.swap(true, Ordering::Relaxed) {
                self.waiting().since = Instant::now();
            }
            self.keep_waker(context);
            return Poll::Pending;
        };
        drop(ledger);
        self.is_blocked.store(false, Ordering::Relaxed);
        Poll::Ready(allowed)
    }

    /// Whether the connection has to make room for another.
    pub(in crate::receive) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(super) fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether it waits for its turn to read.
    pub(in crate::receive) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Whether nothing can happen unless its client does something.
    pub(super) fn is_up_to_client(&self) -> bool {
        let of_client = self.calls_of_client.load(Ordering::Relaxed);
        self.calls.load(Ordering::Relaxed) <= of_client && !self.is_blocked()
    }

    /// There is nothing to read.
    pub(in crate::receive) fn wait_for_client(&self, context: &Context<'_>) {
        self.waiting().since = Instant::now();
        self.keep_waker(context);
    }

    fn keep_waker(&self, context: &Context<'_>) {
        match &mut self.waiting().waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    pub(super) fn wake_if_blocked(&self) {
        if self.is_blocked() {
            self.wake();
        }
    }

    fn wake(&self) {
        let waker = self.waiting().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// So many bytes came from the socket.
    pub(in crate::receive) fn read(&self, bytes: usize) {
        self.set_unread(self.unread.load(Ordering::Relaxed) + bytes);
    }

    /// A frame with so many bytes was handed on to a call.
    pub(in crate::receive) fn handed_on(&self, bytes: usize) {
        let unread = self.unread.load(Ordering::Relaxed);
        self.set_unread(unread.saturating_sub(bytes + FRAME_HEAD_BYTES));
    }

    /// NOTE: not everything that is read is handed on. Heads of calls are not, nor is what comes
    /// for a call that was taken back. But HTTP/2 keeps no more than the window of each stream.
    pub(super) fn set_unread(&self, bytes: usize) {
        let calls = self.open_calls.load(Ordering::Relaxed);
        let at_most = BURST + calls * STREAM_WINDOW as usize;
        let bytes = bytes.min(at_most).min(CONNECTION_WINDOW as usize);
        let before = self.unread.swap(bytes, Ordering::Relaxed);
        if before >= TRICKLE && bytes < TRICKLE {
            self.wake_if_blocked();
            self.end_overdraft();
        }
        let mut ledger = self.budget.lock();
        ledger.unread = (ledger.unread + bytes).saturating_sub(before);
        if ledger.unread >= UNREAD_HIGH {
            ledger.is_closed = true;
        } else if ledger.is_closed && ledger.unread <= UNREAD_LOW {
            ledger.is_closed = false;
            let blocked = std::mem::take(&mut ledger.blocked);
            drop(ledger);
            blocked.into_iter().for_each(Waker::wake);
        }
    }

    /// Lets the next connection be read on: the one of the best repute that has waited longest.
    pub(super) fn end_overdraft(&self) {
        let mut ledger = self.budget.lock();
        if ledger.overdrawn != Some(self.number) {
            return;
        }
        ledger.overdrawn = None;
        drop(ledger);
        let accounts = self.budget.accounts();
        let next = accounts.iter().filter(|account| {
            account.is_blocked() && account.funded_calls.load(Ordering::Relaxed) > 0
        });
        let next = next.min_by_key(|account| (account.client.repute(), account.waiting().since));
        if let Some(next) = next {
            self.budget.lock().overdrawn.get_or_insert(next.number);
            next.wake();
        }
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set_unread(0);
        self.end_overdraft();
    }
}
