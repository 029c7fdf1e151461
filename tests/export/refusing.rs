//! A span that is never taken costs no other.

use spanplane::export::Delivery;

use crate::{
    otlp::{Fault, Reply},
    setup::{GLACIAL, Sender, all, batch, collectors},
};

const ONE_IS_BAD: [&str; 9] = ["a", "b", "c", "d", "bad", "e", "f", "g", "h"];

/// What is left.
const GOOD: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

const ALL_BUT_ONE: Delivery = Delivery {
    accepted: 8,
    dropped: 1,
};

#[tokio::test]
async fn halving_finds_the_span_that_is_refused() {
    for fault in [Fault::Invalid, Fault::TooLarge] {
        for server in collectors().await {
            server.bear_grudge("bad", fault);
            // Nothing is waited for: halves go at once.
            let sender = Sender::with(&server, &[], GLACIAL).unwrap();
            assert_eq!(sender.deliver(&ONE_IS_BAD).await, ALL_BUT_ONE);
            assert_eq!(server.names(), GOOD);
            assert_eq!((sender.exported(), sender.refused()), (8, 1));
            // One for each level, and the span itself.
            assert_eq!(sender.failures(), 4);
        }
    }
}

#[tokio::test]
async fn a_batch_that_is_too_large_goes_in_pieces() {
    for server in collectors().await {
        server.script([Reply::Fail(Fault::TooLarge), Reply::Fail(Fault::TooLarge)]);
        let sender = Sender::with(&server, &[], GLACIAL).unwrap();
        assert_eq!(sender.deliver(&GOOD).await, all(8));
        let pieces = [batch(&GOOD[..2]), batch(&GOOD[2..4]), batch(&GOOD[4..])];
        assert_eq!(server.received(), pieces);
    }
}

#[tokio::test]
async fn a_collector_that_refuses_everything_is_done_with_in_the_end() {
    for server in collectors().await {
        server.script([Reply::Fail(Fault::Invalid); 15]);
        let sender = Sender::with(&server, &[], GLACIAL).unwrap();
        let delivery = sender.deliver(&GOOD).await;
        let nothing = Delivery {
            accepted: 0,
            dropped: 8,
        };
        assert_eq!(delivery, nothing);
        assert_eq!(server.tries().len(), 15);
        assert_eq!(sender.refused(), 8);
    }
}

#[tokio::test]
async fn a_span_that_a_collector_always_fails_at_is_given_up_when_others_pass() {
    for server in collectors().await {
        server.bear_grudge("bad", Fault::Internal);
        let sender = Sender::new(&server);
        assert_eq!(sender.deliver(&ONE_IS_BAD).await, ALL_BUT_ONE);
        let mut names = server.names();
        names.sort();
        assert_eq!(names, GOOD);
        assert_eq!(sender.refused(), 1);
    }
}

#[tokio::test]
async fn a_collector_that_fails_at_everything_for_long_loses_nothing() {
    for server in collectors().await {
        server.script([Reply::Fail(Fault::Internal); 95]);
        let sender = Sender::new(&server);
        assert_eq!(sender.deliver(&["a", "b", "c"]).await, all(3));
        let mut names = server.names();
        names.sort();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(sender.failures(), 95);
    }
}
