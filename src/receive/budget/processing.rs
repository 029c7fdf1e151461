//! Memory for what is made of a payload once it is kept, next to the messages that come in.
//!
//! Invariant: a payload that needs more than is left beside all messages that may come in takes the
//! rest from their budget, for as long as it is in memory; smaller payloads take nothing from it.

use std::sync::Arc;

use super::{
    super::pool::{Client, Funds, Repute},
    Budget,
};

/// A payload, and a copy of it without its secrets: `tests/redaction_memory.rs` holds it to that.
const COPIES: usize = 2;

/// The memory that messages share with what is made of them.
#[derive(Clone, Debug)]
pub struct MessageMemory {
    pub(in crate::receive) budget: Arc<Budget>,
    client: Arc<Client>,
    for_processing: usize,
}

/// Memory that no message gets, for as long as this lives.
#[derive(Debug)]
pub struct Withheld {
    _funds: Funds,
}

impl MessageMemory {
    /// So many bytes for all messages that are being received, and so many beside them.
    pub fn new(for_receiving: usize, for_processing: usize) -> Self {
        let client = Client::default();
        // It does not keep others waiting for long, and what it does makes room on disk.
        client.set_repute(Repute::Good);
        Self {
            budget: Budget::new(for_receiving),
            client: Arc::new(client),
            for_processing,
        }
    }

    /// Waits until there is memory to process a payload of so many bytes.
    ///
    /// Not for asynchronous code: this blocks the thread.
    pub fn wait_to_process(&self, bytes: usize) -> Option<Withheld> {
        let missing = (bytes * COPIES).saturating_sub(self.for_processing);
        if missing == 0 {
            return None;
        }
        let funds = self.budget.large.take(&self.client, missing).wait()?;
        Some(Withheld { _funds: funds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_payload_keeps_messages_out_while_it_is_processed() {
        let memory = MessageMemory::new(32, 48);
        let client = Arc::new(Client::default());
        let large = &memory.budget.large;
        assert!(memory.wait_to_process(24).is_none());
        let withheld = memory.wait_to_process(32).expect("16 are missing");
        assert!(large.try_take(&client, 17).is_none());
        assert!(large.try_take(&client, 16).is_some());
        drop(withheld);
        assert!(large.try_take(&client, 32).is_some());
    }

    #[test]
    fn a_large_payload_waits_for_messages_that_are_coming_in() {
        let memory = MessageMemory::new(32, 48);
        let client = Arc::new(Client::default());
        let coming_in = memory.budget.large.try_take(&client, 32).expect("room");
        let (started, processing) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let memory = memory.clone();
            move || {
                let withheld = memory.wait_to_process(32);
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
}
