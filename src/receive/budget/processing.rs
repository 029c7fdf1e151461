//! Memory for what is made of messages once they are kept, next to those that come in: a payload
//! that is published, one that is joined with others, a page of the viewer.
//!
//! Invariant: all of that has room beside all messages that may come in. What needs more than there
//! is beside these takes the rest from their budget, for as long as it is in memory. What needs
//! little takes nothing: it is within what is kept for everything else.

use std::{pin::Pin, sync::Arc};

use super::{
    super::pool::{Client, Funds, Pool, Repute, Turn},
    Budget,
};
use crate::memory::{Held, SharedMemory};

/// A payload, and a copy of it without its secrets: `tests/redaction_memory.rs` holds it to that.
const COPIES: usize = 2;
/// What needs no more waits for nobody; most payloads are smaller.
const LITTLE_BYTES: usize = 1024 * 1024;

/// The memory that messages share with what is made of them.
#[derive(Clone, Debug)]
pub struct MessageMemory {
    pub(in crate::receive) budget: Arc<Budget>,
    client: Arc<Client>,
    /// Beside all messages; `None` if there is no limit.
    processing: Option<Arc<Pool>>,
    for_processing: usize,
    for_receiving: usize,
}

/// Memory that nobody else gets, for as long as this lives.
#[derive(Debug)]
pub struct Withheld {
    _beside: Funds,
    _of_messages: Option<Funds>,
}

impl MessageMemory {
    /// So many bytes for all messages that are being received, and so many beside them.
    pub fn new(for_receiving: usize, for_processing: usize) -> Self {
        let client = Client::default();
        // It does not keep others waiting for long, and what it does makes room on disk.
        client.set_repute(Repute::Good);
        let is_limited = for_processing < usize::MAX;
        Self {
            budget: Budget::new(for_receiving),
            client: Arc::new(client),
            processing: is_limited.then(|| Pool::new(for_processing)),
            for_processing,
            for_receiving,
        }
    }

    /// Waits until there is memory to process a payload of so many bytes; `None` if that is little.
    ///
    /// Not for asynchronous code: this blocks the thread.
    pub fn wait_to_process(&self, bytes: usize) -> Option<Withheld> {
        let bytes = bytes.saturating_mul(COPIES);
        let beside = self.beside(bytes)?.wait()?;
        let of_messages = self.of_messages(bytes).and_then(Turn::wait);
        Some(Withheld {
            _beside: beside,
            _of_messages: of_messages,
        })
    }

    /// The same for so many bytes in all, and for asynchronous code.
    async fn withhold(&self, bytes: usize) -> Option<Withheld> {
        let beside = self.beside(bytes)?.await?;
        let of_messages = match self.of_messages(bytes) {
            Some(turn) => turn.await,
            None => None,
        };
        Some(Withheld {
            _beside: beside,
            _of_messages: of_messages,
        })
    }

    /// A turn for what there is beside messages; `None` if little is needed, or there is no limit.
    fn beside(&self, bytes: usize) -> Option<Turn> {
        let processing = self.processing.as_ref()?;
        (bytes > LITTLE_BYTES).then(|| processing.take(&self.client, bytes))
    }

    /// A turn for the rest, which messages that come in don't get.
    ///
    /// NOTE: only once there is memory beside messages, so that no two wait for each other. Messages
    /// never wait for that.
    fn of_messages(&self, bytes: usize) -> Option<Turn> {
        let missing = bytes.saturating_sub(self.for_processing);
        (missing > 0).then(|| self.budget.large.take(&self.client, missing))
    }

    /// Whether there can be so much at once.
    fn suffices_for(&self, bytes: usize) -> bool {
        bytes <= self.for_processing.saturating_add(self.for_receiving)
    }
}

impl SharedMemory for MessageMemory {
    fn hold_payload(&self, bytes: usize) -> Option<Held> {
        if !self.suffices_for(bytes.saturating_mul(COPIES)) {
            return None;
        }
        let withheld = self.wait_to_process(bytes);
        Some(withheld.map_or_else(Held::untold, Held::new))
    }

    fn hold(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Held> + Send>> {
        let memory = self.clone();
        Box::pin(async move {
            memory
                .withhold(bytes)
                .await
                .map_or_else(Held::untold, Held::new)
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// What 128 MiB leave.
    fn memory() -> MessageMemory {
        MessageMemory::new(32 * MIB, 48 * MIB)
    }

    #[test]
    fn a_large_payload_keeps_messages_out_while_it_is_processed() {
        let memory = memory();
        let client = Arc::new(Client::default());
        let large = &memory.budget.large;
        let processed = memory.wait_to_process(24 * MIB);
        assert!(large.try_take(&client, 32 * MIB).is_some(), "it has room");
        drop(processed);
        let withheld = memory.wait_to_process(32 * MIB).expect("16 are missing");
        assert!(large.try_take(&client, 17 * MIB).is_none());
        assert!(large.try_take(&client, 16 * MIB).is_some());
        drop(withheld);
        assert!(large.try_take(&client, 32 * MIB).is_some());
    }

    #[test]
    fn a_large_payload_waits_for_messages_that_are_coming_in() {
        let memory = memory();
        let client = Arc::new(Client::default());
        let coming_in = memory.budget.large.try_take(&client, 32 * MIB);
        let coming_in = coming_in.expect("room");
        let (started, processing) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let memory = memory.clone();
            move || {
                let withheld = memory.wait_to_process(32 * MIB);
                started.send(()).expect("somebody listens");
                drop(withheld);
            }
        });
        while !memory.budget.large.is_waited_for() {
            std::thread::yield_now();
        }
        assert!(processing.try_recv().is_err());
        drop(coming_in);
        thread.join().expect("no panic");
        assert!(processing.try_recv().is_ok());
    }

    #[test]
    fn two_large_payloads_are_not_processed_at_once_and_small_ones_wait_for_neither() {
        let memory = memory();
        let processed = memory.wait_to_process(20 * MIB);
        assert!(memory.wait_to_process(LITTLE_BYTES / COPIES).is_none());
        let joining = std::thread::spawn({
            let memory = memory.clone();
            move || drop(memory.hold_payload(20 * MIB).expect("there can be so much"))
        });
        let processing = memory.processing.as_ref().expect("a limit");
        while !processing.is_waited_for() {
            std::thread::yield_now();
        }
        assert!(!joining.is_finished());
        drop(processed);
        joining.join().expect("no panic");
    }

    #[test]
    fn what_never_has_room_is_not_waited_for() {
        assert!(memory().hold_payload(40 * MIB).is_some());
        assert!(memory().hold_payload(40 * MIB + 1).is_none());
        let unlimited = MessageMemory::new(32 * MIB, usize::MAX);
        assert!(unlimited.hold_payload(usize::MAX).is_some());
    }

    #[tokio::test]
    async fn a_page_waits_beside_messages_and_leaves_the_line_when_it_gives_up() {
        let memory = memory();
        let client = Arc::new(Client::default());
        let processed = memory.hold(64 * MIB).await;
        let mut page = memory.hold(32 * MIB);
        assert!((&mut page).now_or_never().is_none());
        drop(page);
        drop(processed);
        let page = memory.hold(32 * MIB).await;
        let messages = memory.budget.large.try_take(&client, 32 * MIB);
        assert!(messages.is_some(), "it has room beside them");
        drop((page, messages));
        assert!(!memory.processing.expect("a limit").is_waited_for());
    }
}
