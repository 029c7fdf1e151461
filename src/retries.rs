//! When something that failed is tried again.
//!
//! Invariant: an item that fails delays only itself. It rests, longer each time, and the others
//! pass. When many items fail in a row, or nothing has succeeded for a while, the other side is
//! assumed to be away: then one item at a time is tried, after growing pauses, until one succeeds.
//! From then on everything may be tried again. New items that fail meanwhile do not put off those
//! that failed before: the other side may take the old ones. What it asks for with one item (to be
//! left alone for a while) counts for that item only, if others succeeded since it first failed.
//! Pure: the caller says what time it is.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    time::{Duration, Instant},
};

use crate::backoff::Backoff;

/// An item's longest rest, in [`Backoff::longest`]: 5 minutes by default. Many items may be stuck
/// at once, and together they must not keep the other side busy.
const LONGEST_REST: u32 = 20;
/// After so many tries a rest is the longest, however the backoff begins.
const MANY_TRIES: u32 = 16;
/// So long without a success, in [`Backoff::longest`], is an outage: 30 seconds by default.
const OUTAGE: u32 = 2;
/// The longest pause of an outage, as a fraction of [`Backoff::longest`]: 5 seconds by default.
const LONGEST_PAUSE: u32 = 3;
/// The same for an item that was never tried, and for everything when in a hurry: 1 second.
const SHORT_PAUSE: u32 = 15;

/// What failed, and when it may be tried again.
#[derive(Debug)]
pub struct Retries<K> {
    backoff: Backoff,
    /// As many different items that fail in a row mean an outage.
    patience: u32,
    items: HashMap<K, Failed>,
    /// Those that are not being tried, by the end of their rest.
    resting: BTreeSet<(Instant, K)>,
    /// Failures since the last success.
    row: Option<Row>,
    /// Counts rows.
    row_number: u64,
    /// Nothing is tried before: the other side asked for it.
    quiet_until: Option<Instant>,
    succeeded_at: Option<Instant>,
    is_in_a_hurry: bool,
}

#[derive(Debug)]
struct Failed {
    tries: u32,
    since: Instant,
    /// It is not tried before, even in an outage: the other side asked for it.
    quiet_until: Option<Instant>,
    rests_until: Instant,
    /// The last row that it was a part of.
    row: u64,
}

#[derive(Debug)]
struct Row {
    since: Instant,
    /// Different items.
    items: u32,
    /// Tries during the outage.
    probes: u32,
    /// During an outage, when an item that failed before may be tried.
    retry_at: Instant,
    /// And when one may be that was never tried.
    fresh_at: Instant,
}

impl<K: Clone + Eq + Hash + Ord> Retries<K> {
    pub fn new(backoff: Backoff, patience: u32) -> Self {
        Self {
            backoff,
            patience,
            items: HashMap::new(),
            resting: BTreeSet::new(),
            row: None,
            row_number: 0,
            quiet_until: None,
            succeeded_at: None,
            is_in_a_hurry: false,
        }
    }

    /// So many different items failed in a row that the other side must be away.
    pub fn is_away(&self) -> bool {
        let row = self.row.as_ref();
        row.is_some_and(|row| row.items >= self.patience)
    }

    /// Whether an item that was never tried may be tried while so many are under way.
    pub fn may_try(&self, under_way: usize, now: Instant) -> bool {
        if self.is_quiet(now) {
            return false;
        }
        match self.outage(now) {
            None => true,
            Some(row) => under_way == 0 && row.fresh_at <= now,
        }
    }

    /// Items that failed and may be tried again, in the order in which they should be. During an
    /// outage there is one at most.
    pub fn due(&self, under_way: usize, now: Instant) -> impl Iterator<Item = &K> {
        let outage = self.outage(now);
        let count = match outage {
            _ if self.is_quiet(now) => 0,
            None => usize::MAX,
            Some(row) => usize::from(under_way == 0 && row.retry_at <= now),
        };
        // NOTE: in an outage it doesn't matter whether the rest is over. It's not about the item.
        let is_due = move |(until, _): &&(Instant, K)| outage.is_some() || *until <= now;
        let due = self.resting.iter().take_while(is_due).map(|(_, key)| key);
        let is_quiet = move |key: &&K| {
            let item = self.items.get(*key);
            item.is_some_and(|item| item.quiet_until.is_some_and(|until| now < until))
        };
        due.filter(move |key| !is_quiet(key)).take(count)
    }

    /// The other side seems to be away, or nothing succeeded for a long time.
    pub fn is_outage(&self, now: Instant) -> bool {
        self.outage(now).is_some()
    }

    /// When [`Self::due`] or [`Self::may_try`] may have another answer than now.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let quiet = self.quiet_until.filter(|until| *until > now);
        let rested = self.resting.first().map(|(until, _)| *until);
        let next = if let Some(row) = self.outage(now) {
            [Some(row.retry_at), Some(row.fresh_at), rested]
        } else {
            let outage = self.row.as_ref().map(|row| row.since + self.outage_after());
            [outage, None, rested]
        };
        let next = next.into_iter().flatten().filter(|moment| *moment > now);
        quiet.or_else(|| next.min())
    }

    /// It is being tried.
    pub fn begin(&mut self, key: &K) {
        if let Some(item) = self.items.get(key) {
            self.resting.remove(&(item.rests_until, key.clone()));
        }
    }

    pub fn succeeded(&mut self, key: &K, now: Instant) {
        self.forget(key);
        self.quiet_until = None;
        self.succeeded_at = Some(now);
        let was_outage = self.outage_by_time(now).is_some();
        if self.row.take().is_some() {
            self.row_number += 1;
        }
        if was_outage {
            // Nobody knows which of them failed because of themselves.
            self.end_rests(now);
        }
    }

    /// Returns how often it failed, not counting failures during an outage. The other side may say
    /// for how long it wants to be left alone.
    pub fn failed(&mut self, key: &K, now: Instant, leave_alone: Option<Duration>) -> u32 {
        let quiet_until = leave_alone.map(|pause| now + pause);
        let others_pass = self
            .succeeded_at
            .zip(self.failing_since(key))
            .is_some_and(|(at, since)| at > since);
        if !others_pass {
            self.quiet_until = self.quiet_until.max(quiet_until);
        } else if let Some(item) = self.items.get_mut(key) {
            item.quiet_until = quiet_until;
        }
        let is_outage = self.outage(now).is_some();
        let is_retry = self.has_failed(key);
        let tries = self.rest(key, now, u32::from(!is_outage));

        let number = self.row_number;
        let item = self.items.get_mut(key);
        let is_first = item.is_some_and(|item| std::mem::replace(&mut item.row, number) != number);
        let row = self.row.get_or_insert(Row {
            since: now,
            items: 0,
            probes: 0,
            retry_at: now,
            fresh_at: now,
        });
        row.items = row.items.saturating_add(u32::from(is_first));
        row.probes = row.probes.saturating_add(u32::from(is_outage));
        let longest = self.backoff.longest;
        let fraction = if self.is_in_a_hurry {
            SHORT_PAUSE
        } else {
            LONGEST_PAUSE
        };
        let pause = self.backoff.up_to(longest / fraction).pause(row.probes);
        // NOTE: else those that failed before would never have their turn while new items keep coming
        // and failing.
        if is_retry || !is_outage {
            row.retry_at = now + pause;
        }
        row.fresh_at = now + pause.min(longest / SHORT_PAUSE);
        tries
    }

    /// It failed because of itself, for all that is known: it rests as long as anything does, so that
    /// others have their turn first.
    pub fn rest_long(&mut self, key: &K, now: Instant) {
        if let Some(item) = self.items.get_mut(key) {
            item.tries = item.tries.max(MANY_TRIES);
            self.rest(key, now, 0);
        }
    }

    /// It could not be tried, which says nothing about the other side.
    pub fn postpone(&mut self, key: &K, now: Instant) {
        self.rest(key, now, 1);
    }

    /// A part of an item that failed: it has been failing for as long.
    pub fn inherit(&mut self, key: K, from: &K, now: Instant) {
        let since = self.failing_since(from).unwrap_or(now);
        self.resting.insert((now, key.clone()));
        let item = Failed {
            tries: 0,
            since,
            quiet_until: None,
            rests_until: now,
            row: u64::MAX,
        };
        self.items.insert(key, item);
    }

    pub fn forget(&mut self, key: &K) {
        if let Some(item) = self.items.remove(key) {
            self.resting.remove(&(item.rests_until, key.clone()));
        }
    }

    pub fn has_failed(&self, key: &K) -> bool {
        self.items.contains_key(key)
    }

    /// How often it failed, not counting failures during an outage.
    pub fn tries(&self, key: &K) -> u32 {
        self.items.get(key).map_or(0, |item| item.tries)
    }

    pub fn failing_since(&self, key: &K) -> Option<Instant> {
        self.items.get(key).map(|item| item.since)
    }

    /// Items that failed and neither succeeded nor were forgotten since.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// There is not much time left: everything may be tried at once, and rests are short.
    pub fn hurry(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_in_a_hurry, true) {
            self.end_rests(now);
            if let Some(row) = &mut self.row {
                (row.retry_at, row.fresh_at) = (now, now);
            }
        }
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.quiet_until.is_some_and(|until| now < until)
    }

    fn outage(&self, now: Instant) -> Option<&Row> {
        let row = self.row.as_ref().filter(|_| self.is_away());
        row.or_else(|| self.outage_by_time(now))
    }

    fn outage_by_time(&self, now: Instant) -> Option<&Row> {
        let row = self.row.as_ref()?;
        (now.saturating_duration_since(row.since) >= self.outage_after()).then_some(row)
    }

    fn outage_after(&self) -> Duration {
        self.backoff.longest.saturating_mul(OUTAGE)
    }

    fn rest(&mut self, key: &K, now: Instant, counts: u32) -> u32 {
        let item = self.items.entry(key.clone()).or_insert(Failed {
            tries: 0,
            since: now,
            quiet_until: None,
            rests_until: now,
            row: u64::MAX,
        });
        let longest = if self.is_in_a_hurry {
            self.backoff.longest / SHORT_PAUSE
        } else {
            self.backoff.longest.saturating_mul(LONGEST_REST)
        };
        self.resting.remove(&(item.rests_until, key.clone()));
        let rests_until = now + self.backoff.up_to(longest).pause(item.tries);
        item.rests_until = item
            .quiet_until
            .map_or(rests_until, |quiet| quiet.max(rests_until));
        self.resting.insert((item.rests_until, key.clone()));
        item.tries = item.tries.saturating_add(counts);
        item.tries
    }

    fn end_rests(&mut self, now: Instant) {
        // NOTE: what is being tried rests again if it fails.
        for (rests_until, key) in std::mem::take(&mut self.resting) {
            let mut ends = rests_until.min(now);
            if let Some(item) = self.items.get_mut(&key) {
                ends = item.quiet_until.map_or(ends, |quiet| quiet.max(ends));
                item.rests_until = ends;
            }
            self.resting.insert((ends, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: u32 = 4;
    const SECOND: Duration = Duration::from_secs(1);

    fn retries() -> (Retries<u32>, Instant) {
        (Retries::new(Backoff::default(), PATIENCE), Instant::now())
    }

    fn next(retries: &Retries<u32>, under_way: usize, now: Instant) -> Option<u32> {
        retries.due(under_way, now).next().copied()
    }

    #[test]
    fn an_item_that_fails_rests_for_longer_each_time_and_the_others_pass() {
        let (mut retries, mut now) = retries();
        let mut rests = Vec::new();
        for tries in 1..=20 {
            assert_eq!(retries.failed(&7, now, None), tries);
            retries.succeeded(&1, now);
            assert!(retries.may_try(1, now));
            assert_eq!(next(&retries, 1, now), None);
            let until = retries.next_change(now).unwrap();
            rests.push(until - now);
            now = until;
            assert_eq!(next(&retries, 1, now), Some(7));
            retries.begin(&7);
            assert_eq!(next(&retries, 1, now), None);
        }
        assert!(rests[0] <= SECOND / 5);
        let longest = Duration::from_mins(5);
        assert!(rests[19] <= longest && rests[19] >= longest / 2);
        retries.succeeded(&7, now);
        assert!(retries.is_empty());
        assert_eq!(retries.next_change(now), None);
    }

    #[test]
    fn when_many_fail_in_a_row_one_is_tried_at_a_time() {
        let (mut retries, mut now) = retries();
        for item in 0..PATIENCE {
            assert!(!retries.is_away() && retries.may_try(7, now));
            retries.failed(&item, now, None);
        }
        assert!(retries.is_away());
        assert!(!retries.may_try(0, now));
        let mut pauses = Vec::new();
        for _ in 0..20 {
            let last = now;
            while next(&retries, 0, now).is_none() {
                now = retries.next_change(now).unwrap();
            }
            // An item that was never tried need not wait for long.
            assert!(retries.may_try(0, last + SECOND));
            assert_eq!(
                (next(&retries, 1, now), retries.may_try(1, now)),
                (None, false)
            );
            pauses.push(now - last);
            let item = next(&retries, 0, now).unwrap();
            retries.begin(&item);
            // Not the item's fault.
            assert_eq!(retries.failed(&item, now, None), 1);
        }
        assert!(pauses[0] <= SECOND / 5);
        assert!(pauses[19] <= 5 * SECOND && pauses[19] >= 2 * SECOND);
        retries.succeeded(&9, now);
        assert!(!retries.is_away() && retries.may_try(7, now));
    }

    #[test]
    fn new_items_that_keep_failing_do_not_put_off_those_that_failed_before() {
        let (mut retries, began) = retries();
        for item in 0..PATIENCE {
            retries.failed(&item, began, None);
        }
        let mut turns = Vec::new();
        for tenth in 1..=1_200 {
            let now = began + tenth * (SECOND / 10);
            // There is always one that is new.
            if retries.may_try(0, now) {
                retries.failed(&(PATIENCE + tenth), now, None);
            } else if let Some(item) = next(&retries, 0, now) {
                retries.begin(&item);
                retries.failed(&item, now, None);
                turns.push(now);
            }
        }
        // Each time that it is one's turn, but not more often than in any other outage.
        assert!((20..=60).contains(&turns.len()), "{}", turns.len());
        let gaps = turns.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        assert!(gaps.max().unwrap() <= 6 * SECOND);
    }

    #[test]
    fn one_item_that_fails_again_and_again_is_no_outage_while_others_pass() {
        let (mut retries, now) = retries();
        for turn in 0..100 {
            let now = now + turn * SECOND;
            retries.failed(&(turn % 3), now, None);
            retries.failed(&(turn % 3), now, None);
            assert!(retries.may_try(7, now));
            retries.succeeded(&99, now);
        }
    }

    #[test]
    fn after_an_outage_everything_is_tried_at_once() {
        let (mut retries, mut now) = retries();
        let began = now;
        // Fewer than it takes to be sure at once.
        while now < began + 120 * SECOND {
            while let Some(item) = next(&retries, 0, now) {
                retries.begin(&item);
                retries.failed(&item, now, None);
            }
            if retries.len() < 2 {
                let item = u32::try_from(retries.len()).unwrap();
                retries.failed(&item, now, None);
            }
            now = retries.next_change(now).unwrap();
        }
        // It is looked every few seconds whether the outage is over, however long they rest.
        while next(&retries, 0, now).is_none() {
            now = retries.next_change(now).unwrap();
        }
        assert!(now <= began + 125 * SECOND);
        retries.begin(&0);
        retries.succeeded(&0, now);
        assert_eq!(next(&retries, 7, now), Some(1));
    }

    #[test]
    fn the_other_side_is_left_alone_for_as_long_as_it_asks_for() {
        let (mut retries, now) = retries();
        retries.failed(&1, now, Some(100 * SECOND));
        let later = now + 99 * SECOND;
        assert_eq!(
            (next(&retries, 0, later), retries.may_try(0, later)),
            (None, false)
        );
        let later = now + 100 * SECOND;
        assert_eq!(
            (next(&retries, 0, later), retries.may_try(0, later)),
            (Some(1), true)
        );
    }

    #[test]
    fn an_item_is_left_alone_and_the_others_pass_if_they_did_before() {
        let (mut retries, now) = retries();
        retries.failed(&1, now, None);
        retries.succeeded(&2, now + SECOND);
        let asked = now + 2 * SECOND;
        retries.failed(&1, asked, Some(300 * SECOND));
        assert!(retries.may_try(7, asked));
        // Nothing else is there to be sent, which looks like an outage.
        let until = asked + 300 * SECOND;
        for later in (0..300).map(|seconds| asked + seconds * SECOND) {
            assert_eq!(next(&retries, 0, later), None);
            assert!(retries.next_change(later).unwrap() <= until);
        }
        assert_eq!(next(&retries, 0, until), Some(1));

        // Nor does the end of an outage have it tried earlier.
        retries.begin(&1);
        retries.failed(&1, until, Some(300 * SECOND));
        retries.succeeded(&2, until + 60 * SECOND);
        assert_eq!(next(&retries, 0, until + 299 * SECOND), None);
        assert_eq!(next(&retries, 0, until + 300 * SECOND), Some(1));
    }

    #[test]
    fn what_is_known_to_fail_lets_others_go_first() {
        let (mut retries, now) = retries();
        for item in 0..PATIENCE {
            retries.failed(&item, now, None);
        }
        retries.rest_long(&0, now);
        let mut tried = Vec::new();
        for later in (1..100).map(|seconds| now + seconds * SECOND) {
            if let Some(item) = next(&retries, 0, later) {
                retries.begin(&item);
                retries.failed(&item, later, None);
                tried.push(item);
            }
        }
        assert!(tried.len() > 10 && !tried.contains(&0), "{tried:?}");
        retries.succeeded(&1, now + 100 * SECOND);
        let due = retries.due(0, now + 5 * 60 * SECOND);
        assert!(due.copied().any(|item| item == 0));
    }

    #[test]
    fn what_can_not_be_tried_says_nothing_about_the_other_side() {
        let (mut retries, now) = retries();
        for item in 0..2 * PATIENCE {
            retries.postpone(&item, now);
        }
        assert!(!retries.is_away() && retries.may_try(7, now));
        assert_eq!(next(&retries, 7, now), None);
        assert!(next(&retries, 7, now + SECOND).is_some());
    }

    #[test]
    fn in_a_hurry_nothing_rests_for_long() {
        let (mut retries, now) = retries();
        for item in 0..2 * PATIENCE {
            for _ in 0..9 {
                retries.failed(&item, now, None);
            }
        }
        retries.hurry(now);
        assert!(next(&retries, 0, now).is_some() && retries.may_try(0, now));
        retries.failed(&1, now, None);
        assert!(next(&retries, 0, now + SECOND).is_some());
    }
}
