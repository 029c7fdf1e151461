//! A call of a connection, from its beginning to its answer, and while its message is on its way.
//!
//! Invariant: what a call counts for is given back when it ends, however it ends.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

use super::{super::pool::Repute, Account};

/// Each takes some KiB, for what HTTP/2 and gRPC keep. Core has a handful.
const MAX_CALLS: usize = 1024;
/// So many calls a connection may have whatever others do.
const CALLS_EACH: usize = 4;

impl Account {
    /// A call has begun; none if there are too many, and this connection has its share.
    pub(in crate::receive) fn call(self: &Arc<Self>) -> Option<Call> {
        let mine = self.calls.load(Ordering::Relaxed);
        if mine >= CALLS_EACH && self.budget().calls.load(Ordering::Relaxed) >= MAX_CALLS {
            return None;
        }
        if mine == 0 {
            let mut waiting = self.waiting();
            if std::mem::take(&mut waiting.was_fruitful) {
                waiting.fruitless_since = Instant::now();
            }
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.budget().calls.fetch_add(1, Ordering::Relaxed);
        Some(Call(Arc::clone(self)))
    }

    /// The message of a call is on its way.
    pub(in crate::receive) fn open(self: &Arc<Self>) -> OpenCall {
        self.open_calls.fetch_add(1, Ordering::Relaxed);
        self.calls_of_client.fetch_add(1, Ordering::Relaxed);
        OpenCall {
            account: Arc::clone(self),
            is_funded: false,
            is_up_to_client: true,
        }
    }
}

/// A call, until its answer.
#[derive(Debug)]
pub(in crate::receive) struct Call(Arc<Account>);

impl Call {
    pub(in crate::receive) fn account(&self) -> &Arc<Account> {
        &self.0
    }

    /// Its message has arrived.
    pub(in crate::receive) fn bear_fruit(&self) {
        self.0.client.set_repute(Repute::Good);
        let mut waiting = self.0.waiting();
        waiting.fruitless_since = Instant::now();
        waiting.was_fruitful = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.budget().calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call whose message is on its way.
#[derive(Debug)]
pub(in crate::receive) struct OpenCall {
    account: Arc<Account>,
    is_funded: bool,
    is_up_to_client: bool,
}

impl OpenCall {
    pub(in crate::receive) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The message waits for its part of the budget.
    pub(in crate::receive) fn queued(&mut self) {
        if std::mem::take(&mut self.is_up_to_client) {
            self.account.calls_of_client.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The message has its part of the budget, and the client can go on.
    pub(in crate::receive) fn funded(&mut self) {
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
