//! How many bytes of messages may be in memory while they come in, over all connections.
//!
//! A message takes its size from a pool once that is known, and before more of it is read than
//! HTTP/2 hands over unasked: the window of its stream. What a client may not send yet stays with
//! the client. That window is kept for every stream of every connection, so what has been read of
//! messages that wait is counted as well. Beyond [`UNREAD_HIGH`] a connection gets no more than
//! [`TRICKLE`] that nobody has taken yet: enough for a call and the length of its message, and for
//! one message after the other. Where messages that wait stand before one that has its part of the
//! budget, the connection has to be read on: that is allowed to one connection at a time.
//!
//! Invariants: memory does not grow with the number of calls or of clients that are slow; a message
//! of any size gets its turn; small messages, as core's usually are, don't wait for large ones.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    inspector::{CONNECTION_WINDOW, STREAM_WINDOW},
    pool::{Client, Funds, Pool, Repute, Turn},
};

/// Messages of up to this size have a budget of their own.
const SMALL_BYTES: usize = 256 * 1024;
const SMALL_BUDGET: usize = 4 * 1024 * 1024;
/// Read, and not yet part of a message that may come in.
const UNREAD_HIGH: usize = 8 * 1024 * 1024;
const UNREAD_LOW: usize = UNREAD_HIGH / 2;
/// The head of a call and the largest frame of data: HTTP/2 hands on whole frames.
const TRICKLE: usize = 32 * 1024;
/// Of a frame. It is read, and nobody takes it.
const FRAME_HEAD_BYTES: usize = 9;
/// What a connection may have read in one go, of streams that nobody has looked at yet.
const BURST: usize = 256 * 1024;
/// Buffers that are kept for the next to read.
const SPARE_BUFFERS: usize = 4;
/// Each takes some KiB, for what HTTP/2 and gRPC keep. Core has a handful.
const MAX_CALLS: usize = 1024;
/// So many calls a connection may have whatever others do.
const CALLS_EACH: usize = 4;

/// Most messages are read with one system call, or two.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// The budget of all connections.
#[derive(Debug)]
pub(super) struct Budget {
    small: Arc<Pool>,
    large: Arc<Pool>,
    calls: AtomicUsize,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    unread: usize,
    is_closed: bool,
    /// Connections that want to read.
    blocked: Vec<Waker>,
    /// The one connection that may be read on for what it has to come, by number.
    overdrawn: Option<u64>,
    opened: u64,
    accounts: Vec<Weak<Account>>,
    buffers: Vec<Box<[u8]>>,
}

/// What one connection takes of it.
#[derive(Debug)]
pub(super) struct Account {
    number: u64,
    budget: Arc<Budget>,
    client: Arc<Client>,
    /// Read, and not yet handed on; an estimate that is never far below.
    unread: AtomicUsize,
    /// Those without an answer.
    calls: AtomicUsize,
    /// Of these, those whose message is on its way.
    open_calls: AtomicUsize,
    /// Of these, those that the client has to go on with.
    calls_of_client: AtomicUsize,
    /// Those that have their part of the budget and are not complete.
    funded_calls: AtomicUsize,
    is_blocked: AtomicBool,
    waiting: Mutex<Waiting>,
    evicted: AtomicBool,
}

/// What is known of a connection that waits, for its client or for its turn.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    waker: Option<Waker>,
    /// Since its last message arrived, or since the client had reason to begin one.
    fruitless_since: Instant,
    /// A message has arrived since then, so that the next call begins anew.
    was_fruitful: bool,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            small: Pool::new(SMALL_BUDGET),
            large: Pool::new(bytes),
            calls: AtomicUsize::new(0),
            ledger: Mutex::default(),
        })
    }

    /// Opens an account for a new connection.
    pub(super) fn account(self: &Arc<Self>) -> Arc<Account> {
        let mut ledger = self.lock();
        ledger.opened += 1;
        let account = Arc::new(Account {
            number: ledger.opened,
            budget: Arc::clone(self),
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
        });
        ledger.accounts.push(Arc::downgrade(&account));
        account
    }

    /// Connections that are open.
    pub(super) fn connections(&self) -> usize {
        let mut ledger = self.lock();
        ledger.accounts.retain(|account| account.strong_count() > 0);
        ledger.accounts.len()
    }

    /// Has the connection closed that has been without a call longest, if that is so long; tells
    /// whether there is one.
    pub(super) fn evict_idle(&self, idle_for: Duration) -> bool {
        let accounts = self.accounts();
        let idle = accounts
            .iter()
            .filter(|account| account.calls.load(Ordering::Relaxed) == 0 && !account.is_evicted());
        let longest = idle.min_by_key(|account| account.waiting().since);
        let longest = longest.filter(|account| account.waiting().since.elapsed() >= idle_for);
        longest.inspect(|account| account.evict()).is_some()
    }

    /// Has the connection closed whose client has been slow longest, if that is so long, first of
    /// those that have sent nothing complete; tells whether there is one.
    pub(super) fn evict_slow(&self, slow_for: Duration) -> bool {
        let accounts = self.accounts();
        let slow = accounts.iter().filter(|account| {
            !account.is_evicted()
                && (account.is_up_to_client() || account.client.repute() == Repute::Slow)
                && account.waiting().fruitless_since.elapsed() >= slow_for
        });
        let longest = slow.min_by_key(|account| {
            let repute = std::cmp::Reverse(account.client.repute());
            (repute, account.waiting().fruitless_since)
        });
        longest.inspect(|account| account.evict()).is_some()
    }

    /// Whether somebody waits for what another client does not use.
    pub(super) fn is_waited_for(&self) -> bool {
        let is_held_up = |account: &Arc<Account>| {
            account.is_blocked() && account.funded_calls.load(Ordering::Relaxed) > 0
        };
        self.small.is_waited_for()
            || self.large.is_waited_for()
            || self.accounts().iter().any(is_held_up)
    }

    fn accounts(&self) -> Vec<Arc<Account>> {
        let accounts = self.lock().accounts.clone();
        accounts.iter().filter_map(Weak::upgrade).collect()
    }

    /// Connections without a call have nothing unread that is worth counting.
    pub(super) fn sweep(&self) {
        for account in self.accounts() {
            if account.open_calls.load(Ordering::Relaxed) == 0 {
                account.set_unread(0);
            }
        }
    }

    /// A buffer to read into.
    pub(super) fn take_buffer(&self) -> Box<[u8]> {
        let spare = self.lock().buffers.pop();
        spare.unwrap_or_else(|| vec![0; READ_BYTES].into())
    }

    pub(super) fn give_back_buffer(&self, buffer: Box<[u8]>) {
        let mut ledger = self.lock();
        if ledger.buffers.len() < SPARE_BUFFERS {
            ledger.buffers.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Room for a message of so many bytes, if there is now.
    pub(super) fn try_fund(&self, bytes: usize) -> Option<Funds> {
        let Budget { small, large, .. } = &*self.budget;
        let in_small = || small.try_take(&self.client, bytes);
        let small = (bytes <= SMALL_BYTES).then(in_small).flatten();
        small.or_else(|| large.try_take(&self.client, bytes))
    }

    /// The same, in turn.
    pub(super) fn fund(&self, bytes: usize) -> Turn {
        let Budget { small, large, .. } = &*self.budget;
        let pool = if bytes <= SMALL_BYTES { small } else { large };
        pool.take(&self.client, bytes)
    }

    /// Ready once the connection may read, with how much.
    pub(super) fn poll_may_read(&self, context: &Context<'_>) -> Poll<usize> {
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
    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether it waits for its turn to read.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Whether nothing can happen unless its client does something.
    fn is_up_to_client(&self) -> bool {
        let of_client = self.calls_of_client.load(Ordering::Relaxed);
        self.calls.load(Ordering::Relaxed) <= of_client && !self.is_blocked()
    }

    /// There is nothing to read.
    pub(super) fn wait_for_client(&self, context: &Context<'_>) {
        self.waiting().since = Instant::now();
        self.keep_waker(context);
    }

    fn keep_waker(&self, context: &Context<'_>) {
        match &mut self.waiting().waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    fn wake_if_blocked(&self) {
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
    pub(super) fn read(&self, bytes: usize) {
        self.set_unread(self.unread.load(Ordering::Relaxed) + bytes);
    }

    /// A frame with so many bytes was handed on to a call.
    pub(super) fn handed_on(&self, bytes: usize) {
        let unread = self.unread.load(Ordering::Relaxed);
        self.set_unread(unread.saturating_sub(bytes + FRAME_HEAD_BYTES));
    }

    /// A call has begun; none if there are too many, and this connection has its share.
    pub(super) fn call(self: &Arc<Self>) -> Option<Call> {
        let mine = self.calls.load(Ordering::Relaxed);
        if mine >= CALLS_EACH && self.budget.calls.load(Ordering::Relaxed) >= MAX_CALLS {
            return None;
        }
        if mine == 0 {
            let mut waiting = self.waiting();
            if std::mem::take(&mut waiting.was_fruitful) {
                waiting.fruitless_since = Instant::now();
            }
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.budget.calls.fetch_add(1, Ordering::Relaxed);
        Some(Call(Arc::clone(self)))
    }

    /// The message of a call is on its way.
    pub(super) fn open(self: &Arc<Self>) -> OpenCall {
        self.open_calls.fetch_add(1, Ordering::Relaxed);
        self.calls_of_client.fetch_add(1, Ordering::Relaxed);
        OpenCall {
            account: Arc::clone(self),
            is_funded: false,
            is_up_to_client: true,
        }
    }

    /// NOTE: not everything that is read is handed on. Heads of calls are not, nor is what comes
    /// for a call that was taken back. But HTTP/2 keeps no more than the window of each stream.
    fn set_unread(&self, bytes: usize) {
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
    fn end_overdraft(&self) {
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

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set_unread(0);
        self.end_overdraft();
    }
}

/// A call, until its answer.
#[derive(Debug)]
pub(super) struct Call(Arc<Account>);

impl Call {
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.0
    }

    /// Its message has arrived.
    pub(super) fn bear_fruit(&self) {
        self.0.client.set_repute(Repute::Good);
        let mut waiting = self.0.waiting();
        waiting.fruitless_since = Instant::now();
        waiting.was_fruitful = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.budget.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call whose message is on its way.
#[derive(Debug)]
pub(super) struct OpenCall {
    account: Arc<Account>,
    is_funded: bool,
    is_up_to_client: bool,
}

impl OpenCall {
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The message waits for its part of the budget.
    pub(super) fn queued(&mut self) {
        if std::mem::take(&mut self.is_up_to_client) {
            self.account.calls_of_client.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The message has its part of the budget, and the client can go on.
    pub(super) fn funded(&mut self) {
        if !self.is_up_to_client {
            self.is_up_to_client = true;
            self.account.calls_of_client.fetch_add(1, Ordering::Relaxed);
            if self.account.client.repute() != Repute::Slow {
                self.account.waiting().fruitless_since = Instant::now();
            }
        }
        self.is_funded = true;
        self.account.funded_calls.fetch_add(1, Ordering::Relaxed);
        self.account.wake_if_blocked();
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.queued();
        if self.is_funded && self.account.funded_calls.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.account.end_overdraft();
        }
        if self.account.open_calls.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.account.set_unread(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How much it may read now.
    fn may_read(account: &Account, woken: &Arc<Counting>) -> usize {
        let waker = Waker::from(Arc::clone(woken));
        match account.poll_may_read(&Context::from_waker(&waker)) {
            Poll::Ready(bytes) => bytes,
            Poll::Pending => 0,
        }
    }

    /// Connections with so much unread that nobody else may read.
    fn full(budget: &Arc<Budget>) -> Vec<(Arc<Account>, OpenCall)> {
        let mut connections = Vec::new();
        while !budget.lock().is_closed {
            let account = budget.account();
            let call = account.open();
            for _ in 0..4 {
                account.read(READ_BYTES);
            }
            connections.push((account, call));
        }
        connections
    }

    #[tokio::test]
    async fn when_much_is_unread_only_those_read_who_have_to() {
        let budget = Budget::new(1 << 20);
        let connections = full(&budget);
        assert_eq!(connections.len(), UNREAD_HIGH / (4 * READ_BYTES));
        let (newcomer, woken) = (budget.account(), Arc::default());
        assert_eq!(may_read(&newcomer, &woken), TRICKLE, "to see what it wants");
        let mut call = newcomer.open();
        newcomer.read(TRICKLE);
        assert_eq!(may_read(&newcomer, &woken), 0);
        assert_eq!(may_read(&newcomer, &woken), 0);
        assert_eq!(budget.lock().blocked.len(), 1, "noted once");
        call.funded();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(may_read(&newcomer, &woken), READ_BYTES);
    }

    #[tokio::test]
    async fn of_the_connections_with_messages_that_are_let_in_one_is_read_beyond_its_share() {
        let budget = Budget::new(1 << 20);
        let _full = full(&budget);
        let mut connections = Vec::new();
        for _ in 0..10 {
            let account = budget.account();
            let mut calls: Vec<_> = (0..99).map(|_| account.open()).collect();
            calls.last_mut().unwrap().funded();
            let woken = Arc::default();
            // As much as it may.
            for _ in 0..1000 {
                account.read(may_read(&account, &woken));
            }
            connections.push((account, calls, woken));
        }
        let unread = budget.lock().unread;
        let at_most = UNREAD_HIGH + CONNECTION_WINDOW as usize + 9 * TRICKLE;
        assert!(unread <= at_most, "{unread}");
        // With what was let in complete, it is the next one's turn, and only that one's.
        let (first, calls, _) = connections.first_mut().unwrap();
        calls.pop();
        assert_eq!(may_read(first, &Arc::default()), 0);
        let woken = connections
            .iter()
            .filter(|(.., woken)| woken.0.load(Ordering::Relaxed) > 0);
        assert_eq!(woken.count(), 1);
        let readers = connections
            .iter()
            .filter(|(account, _, woken)| may_read(account, woken) > 0);
        assert_eq!(readers.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_is_slow_longest_makes_room_and_none_that_waits_for_us() {
        const SECOND: Duration = Duration::from_secs(1);
        let budget = Budget::new(1 << 20);
        let [answering, queued, slow, also_slow] = [(); 4].map(|()| budget.account());
        let _answering = answering.call().unwrap();
        let _queued = (queued.call().unwrap(), {
            let mut message = queued.open();
            message.queued();
            message
        });
        let _slow = (slow.call().unwrap(), slow.open());
        tokio::time::advance(SECOND / 2).await;
        let _also_slow = (also_slow.call().unwrap(), also_slow.open());
        assert!(!budget.evict_idle(Duration::ZERO));
        assert!(!budget.evict_slow(SECOND), "not yet");
        tokio::time::advance(SECOND / 2).await;
        for expected in [&slow, &also_slow] {
            assert!(!expected.is_evicted());
            assert!(budget.evict_slow(SECOND));
            assert!(expected.is_evicted());
            tokio::time::advance(SECOND).await;
        }
        assert!(!budget.evict_slow(SECOND));
        // It was slow before: that others are served first is no reason to stay.
        queued.client().set_repute(Repute::Slow);
        assert!(budget.evict_slow(SECOND));
        assert!(queued.is_evicted() && !answering.is_evicted());
    }

    #[tokio::test]
    async fn those_who_wait_are_woken_once_less_is_unread() {
        let budget = Budget::new(1 << 20);
        let mut connections = full(&budget);
        let (newcomer, woken) = (budget.account(), Arc::default());
        let _call = newcomer.open();
        newcomer.read(2 * TRICKLE);
        assert_eq!(may_read(&newcomer, &woken), 0);
        newcomer.handed_on(2 * TRICKLE);
        assert_eq!(woken.0.swap(0, Ordering::Relaxed), 1, "its own is enough");
        newcomer.read(2 * TRICKLE);
        assert_eq!(may_read(&newcomer, &woken), 0);
        // Handed on, taken back, gone.
        let (account, call) = connections.pop().unwrap();
        account.handed_on(4 * READ_BYTES);
        connections.push((account, call));
        while woken.0.load(Ordering::Relaxed) == 0 {
            let (account, call) = connections.pop().unwrap();
            if connections.len().is_multiple_of(2) {
                drop(call);
            } else {
                drop((account, call));
            }
        }
        assert_eq!(may_read(&newcomer, &woken), READ_BYTES);
        let unread = budget.lock().unread;
        assert!(unread <= UNREAD_LOW && unread > UNREAD_LOW / 2, "{unread}");
        drop(connections);
        assert_eq!(budget.lock().unread, 2 * TRICKLE);
    }

    #[tokio::test]
    async fn what_is_never_handed_on_is_forgotten_once_there_is_no_call() {
        let budget = Budget::new(1 << 20);
        let mut without_calls = Vec::new();
        while !budget.lock().is_closed {
            let account = budget.account();
            account.read(READ_BYTES);
            without_calls.push(account);
        }
        let last = without_calls.last().unwrap();
        assert_eq!(may_read(last, &Arc::default()), 0);
        budget.sweep();
        assert_eq!(may_read(last, &Arc::default()), READ_BYTES);
        assert_eq!(budget.lock().unread, 0);
    }

    #[tokio::test]
    async fn no_connection_counts_for_more_than_it_can_hold() {
        let budget = Budget::new(1 << 20);
        let account = budget.account();
        let calls: Vec<_> = (0..3).map(|_| account.open()).collect();
        for _ in 0..1000 {
            account.read(READ_BYTES);
        }
        let at_most = BURST + 3 * STREAM_WINDOW as usize;
        assert_eq!(budget.lock().unread, at_most);
        drop(calls);
        assert_eq!(budget.lock().unread, 0);
    }
}
