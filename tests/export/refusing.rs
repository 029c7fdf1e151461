//! A span that is not taken holds no other up, and is not lost.

use std::{
    cell::Cell,
    collections::HashSet,
    time::{Duration, Instant},
};

use spanplane::{
    backoff::Backoff,
    disk::LocalDisk,
    outbox::{Quarantine, TraceBatches},
    spans::EncodedSpans,
};

use crate::{
    otlp::{Fault, OtlpServer, Reply},
    setup::{Delivery, GLACIAL, QUICK, Sender, all, batch, collectors, waiting},
};

const ONE_IS_BAD: [&str; 9] = ["a", "b", "c", "d", "bad", "e", "f", "g", "h"];

/// What is left.
const GOOD: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

const ALL_BUT_ONE: Delivery = Delivery {
    accepted: 8,
    rejected: 0,
    quarantined: 1,
};

#[tokio::test]
async fn halving_finds_the_span_that_is_refused() {
    for fault in [Fault::Invalid, Fault::TooLarge] {
        for server in collectors().await {
            server.bear_grudge("bad", fault);
            // Nothing is waited for: halves go at once.
            let mut sender = Sender::with(&server, &[], GLACIAL);
            assert_eq!(sender.deliver(&ONE_IS_BAD).await, ALL_BUT_ONE);
            assert_eq!(server.names(), GOOD);
            assert_eq!((sender.exported(), sender.lost()), (8, 0));
            // One for each level, and the span itself.
            assert_eq!(sender.failures(), 4);
            let note = sender.quarantined()[0].note(&LocalDisk).unwrap();
            assert_eq!(note.what, "bad");
            assert!(note.reason.contains("refuses"), "{note:?}");
        }
    }
}

#[tokio::test]
async fn spans_in_quarantine_are_sent_again_on_command() {
    for server in collectors().await {
        server.bear_grudge("bad", Fault::Invalid);
        let mut sender = Sender::new(&server);
        sender.deliver(&ONE_IS_BAD).await;
        server.forgive();
        Quarantine::retry(&LocalDisk, &sender.quarantined()[0]).unwrap();
        // As the sidecar does it.
        let held = sender.quarantined();
        let batches = &sender.batches;
        batches.take_back(&held[0].path, &held[0].name).unwrap();
        assert_eq!(sender.deliver(&[]).await.accepted, 1);
        assert_eq!(server.received().last(), Some(&batch(&["bad"])));
    }
}

#[tokio::test]
async fn a_batch_that_is_too_large_goes_in_pieces() {
    for server in collectors().await {
        server.script([Reply::Fail(Fault::TooLarge), Reply::Fail(Fault::TooLarge)]);
        let mut sender = Sender::with(&server, &[], GLACIAL);
        assert_eq!(sender.deliver(&GOOD).await, all(8));
        let pieces = [batch(&GOOD[..2]), batch(&GOOD[2..4]), batch(&GOOD[4..])];
        assert_eq!(server.received(), pieces);
    }
}

#[tokio::test]
async fn what_is_left_when_a_collector_goes_away_meanwhile_is_sent_later() {
    for server in collectors().await {
        // The whole, its first half, the first of that; then it goes away.
        server.script([
            Reply::Fail(Fault::Invalid),
            Reply::Fail(Fault::Invalid),
            Reply::Accept,
            Reply::Fail(Fault::Unavailable),
        ]);
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&GOOD).await, all(8));
        assert_eq!(
            server.received(),
            [batch(&GOOD[..2]), {
                let mut rest = batch(&GOOD[2..4]);
                rest.resource_spans.extend(batch(&GOOD[4..]).resource_spans);
                rest
            }]
        );
    }
}

#[tokio::test]
async fn a_collector_that_refuses_everything_loses_nothing() {
    for server in collectors().await {
        server.bear_grudge_against_all(Fault::Invalid);
        let mut sender = Sender::new(&server);
        sender.add(&GOOD);
        let tried = || server.tries().len() > 100;
        sender.send_until("it was tried often", |_| tried()).await;
        server.forgive();
        assert_eq!(sender.deliver(&["x"]).await, all(9));
        assert_eq!(sender.quarantined(), []);
        assert_eq!(sender.lost(), 0);
    }
}

#[tokio::test]
async fn a_batch_that_a_collector_fails_at_holds_no_other_up() {
    for server in collectors().await {
        server.bear_grudge("bad", Fault::Internal);
        let mut sender = Sender::new(&server);
        sender.add(&ONE_IS_BAD);
        let has = |name: &str| server.names().iter().any(|it| it == name);
        let all_good = || GOOD.iter().all(|name| has(name));
        sender
            .send_among_others("the good ones passed", all_good)
            .await;
        assert!(has("other"));

        // Only the span that it fails at is left, and stays.
        let one_is_left = |batches: &TraceBatches| waiting(batches) == [1];
        sender.send_until("one is left", one_is_left).await;
        assert!(!has("bad"));
        assert_eq!((sender.quarantined().len(), sender.lost()), (0, 0));

        server.forgive();
        sender.deliver(&[]).await;
        assert_eq!(server.received().last(), Some(&batch(&["bad"])));
    }
}

#[tokio::test]
async fn good_spans_do_not_stay_behind_one_that_a_collector_is_unavailable_for() {
    for fault in [Fault::Unavailable, Fault::Exhausted] {
        for server in collectors().await {
            server.bear_grudge("bad", fault);
            let mut sender = Sender::new(&server);
            sender.add(&ONE_IS_BAD);
            let has = |name: &str| server.names().iter().any(|it| it == name);
            let all_good = || GOOD.iter().all(|name| has(name));
            sender
                .send_among_others("the good ones passed", all_good)
                .await;
            assert!(!has("bad"));
            assert_eq!((sender.quarantined().len(), sender.lost()), (0, 0));
        }
    }
}

/// As it is by default, 200 times as fast.
const FAST: Backoff = Backoff {
    first: Duration::from_millis(1),
    longest: Duration::from_millis(75),
};

/// What becomes of good spans if there is a bad one in every batch, and batches keep coming: five
/// for each that comes in reality.
async fn send_batches_with_bad_spans(server: &OtlpServer, fault: Fault) {
    const BATCHES: usize = 100;
    const ROOM: u64 = 4 << 20;
    server.bear_grudge("bad", fault);
    let mut sender = Sender::with_bytes(server, &[], FAST, ROOM);
    let added = Cell::new(0);
    let good = |number: usize| (0..3).map(move |place| format!("good {number} {place}"));
    let bad = BATCHES + BATCHES.div_ceil(3);
    let only_bad_ones_wait = |batches: &TraceBatches| {
        added.get() == BATCHES && waiting(batches).iter().sum::<u64>() == bad as u64
    };
    let is_so = |batches: &TraceBatches| {
        let number = added.get();
        if number < BATCHES {
            let mut names: Vec<_> = good(number).collect();
            names.insert(number % 4, "bad".to_owned());
            // What belongs together is in a row.
            if number.is_multiple_of(3) {
                names.insert(number % 4, "bad".to_owned());
            }
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            batches.add(&EncodedSpans::of(&batch(&names))).unwrap();
            added.set(number + 1);
        }
        only_bad_ones_wait(batches)
    };
    sender.send_until("only bad spans wait", is_so).await;

    let names: HashSet<_> = server.names().into_iter().collect();
    let missing = (0..BATCHES)
        .flat_map(good)
        .find(|name| !names.contains(name));
    assert_eq!(missing, None);
    assert!(!names.contains("bad"));
    assert_eq!((sender.quarantined().len(), sender.lost()), (0, 0));
    server.forgive();
    sender
        .send_until("nothing waits", TraceBatches::is_empty)
        .await;
    let names = server.names();
    // What was under way when nobody sent any more may come twice.
    assert!(names.iter().filter(|name| *name == "bad").count() >= bad);
}

#[tokio::test]
async fn good_spans_pass_although_a_collector_fails_at_every_batch() {
    for server in collectors().await {
        send_batches_with_bad_spans(&server, Fault::Internal).await;
    }
}

#[tokio::test]
async fn good_spans_pass_although_a_collector_is_unavailable_for_every_batch() {
    for server in collectors().await {
        send_batches_with_bad_spans(&server, Fault::Unavailable).await;
    }
}

#[tokio::test]
async fn a_batch_on_its_own_is_sifted_too() {
    for server in collectors().await {
        server.bear_grudge("bad", Fault::Internal);
        let mut sender = Sender::new(&server);
        sender.add(&ONE_IS_BAD);
        let one_is_left = |batches: &TraceBatches| waiting(batches) == [1];
        sender.send_until("one is left", one_is_left).await;
        let mut names = server.names();
        names.sort();
        assert_eq!(names, GOOD);
    }
}

#[tokio::test]
async fn a_collector_that_fails_at_everything_is_not_asked_often() {
    for fault in [Fault::Internal, Fault::Unavailable, Fault::Denied] {
        for server in collectors().await {
            server.bear_grudge_against_all(fault);
            // 50 times as fast as by default: what follows are 30 s.
            let backoff = Backoff {
                first: Duration::from_millis(4),
                longest: Duration::from_millis(300),
            };
            let mut sender = Sender::with(&server, &[], backoff);
            for _ in 0..30 {
                sender.add(&ONE_IS_BAD);
            }
            let began = Instant::now();
            let is_over = |_: &TraceBatches| began.elapsed() > Duration::from_millis(600);
            sender.send_until("it is over", is_over).await;
            // One that is new each second at least, one that is not each five, and single spans.
            let tries = server.tries().len();
            assert!((10..=110).contains(&tries), "{fault:?}: {tries}");
            assert_eq!(waiting(&sender.batches), [9; 30]);
            assert_eq!((sender.quarantined().len(), sender.lost()), (0, 0));
        }
    }
}

#[tokio::test]
async fn halves_survive_a_restart() {
    for server in collectors().await {
        server.bear_grudge("bad", Fault::Internal);
        let mut sender = Sender::new(&server);
        sender.add(&ONE_IS_BAD);
        let one_half = || server.names().iter().any(|name| name == "a");
        sender.send_among_others("it is split", one_half).await;
        assert!(waiting(&sender.batches).iter().all(|spans| *spans < 9));

        let mut sender = sender.restart(&server);
        server.forgive();
        sender.deliver(&[]).await;
        let names = server.names();
        for name in ONE_IS_BAD {
            assert!(
                names.iter().any(|it| it == name),
                "{name} is not in {names:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_bad_batch_costs_no_newer_one_its_place() {
    for server in collectors().await {
        server.bear_grudge("bad", Fault::Internal);
        // Room for a few batches.
        let mut sender = Sender::with_bytes(&server, &[], QUICK, 16 * 1024);
        sender.add(&["bad"]);
        for number in 0..50 {
            let name = format!("other {number}");
            assert_eq!(sender.add(&[&name]), 0);
            let one_is_left = |batches: &TraceBatches| waiting(batches) == [1];
            sender.send_until("it passed", one_is_left).await;
            assert!(server.names().contains(&name));
        }
        assert_eq!(sender.lost(), 0);
    }
}

#[tokio::test]
async fn a_collector_that_fails_at_everything_for_long_loses_nothing() {
    for server in collectors().await {
        server.script([Reply::Fail(Fault::Internal); 95]);
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&["a", "b", "c"]).await, all(3));
        let mut names = server.names();
        names.sort();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(sender.failures(), 95);
    }
}
