//! How messages that come in share the memory for them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use super::{
    super::{
        inspector::{CONNECTION_WINDOW, STREAM_WINDOW},
        pool::Repute,
    },
    account::BURST,
    *,
};

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
