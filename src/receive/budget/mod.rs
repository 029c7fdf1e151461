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

mod account;
mod calls;
mod processing;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

pub use self::processing::{MessageMemory, Withheld};
pub(super) use self::{
    account::Account,
    calls::{Call, OpenCall},
};
use super::pool::{Pool, Repute};

/// Messages of up to this size have a budget of their own.
const SMALL_BYTES: usize = 256 * 1024;
const SMALL_BUDGET: usize = 4 * 1024 * 1024;
/// Read, and not yet part of a message that may come in.
const UNREAD_HIGH: usize = 8 * 1024 * 1024;
const UNREAD_LOW: usize = UNREAD_HIGH / 2;
/// The head of a call and the largest frame of data: HTTP/2 hands on whole frames.
const TRICKLE: usize = 32 * 1024;
/// Buffers that are kept for the next to read.
const SPARE_BUFFERS: usize = 4;

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
        let account = Arc::new(Account::new(ledger.opened, Arc::clone(self)));
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
