//! Taking back: what a person wants to be sent again leaves the quarantine.
//!
//! Invariant: a message leaves only once it is in the log again for good, so that a crash in between
//! has it processed twice at worst, which leads to the same object. It comes late there: its
//! reconcile is put together with what is stored of it.

use std::io;

use super::Desk;
use crate::{
    outbox::{Quarantinable, Quarantined},
    pace::breathe,
    record::Record,
};

impl Desk {
    pub(super) fn take_back_retried(&mut self) {
        let retried = match self.behind.quarantine.retried() {
            Ok(retried) => retried,
            Err(error) => {
                tracing::warn!(%error, "cannot look into the quarantine");
                return;
            }
        };
        let is_there = |id: &u64| retried.iter().any(|file| file.id == *id);
        self.watch.untakeable.retain(is_there);
        self.watch.appended.retain(|id, _| is_there(id));
        let mut appended = Vec::new();
        for file in retried {
            let (path, name) = (&file.path, &file.name);
            let taken = match (file.what, &self.behind.tracing) {
                (Quarantinable::Object, _) => {
                    let now = self.behind.clock.now();
                    self.behind.parcels.take_back(path, now)
                }
                (Quarantinable::Index, _) => self.behind.index.take_back(path, name),
                (Quarantinable::Spans, Some(tracing)) if tracing.is_sending => {
                    tracing.batches.take_back(path, name)
                }
                // They wait until there is a collector, or no room for them.
                (Quarantinable::Spans, _) => {
                    self.watch.untakeable.insert(file.id);
                    continue;
                }
                (Quarantinable::Message, _) => self.append_again(&file),
            };
            match taken {
                Ok(()) => {
                    self.watch.untakeable.remove(&file.id);
                    if file.what == Quarantinable::Message {
                        appended.push(file);
                        continue;
                    }
                    tracing::info!(id = file.id, "sending again what was in quarantine");
                    self.behind.quarantine.release(&file);
                }
                Err(error) => {
                    if self.watch.untakeable.insert(file.id) {
                        tracing::warn!(
                            id = file.id, %error,
                            "cannot take a file out of quarantine yet; it stays there while there \
                             is room, and is tried again (spanplane quarantine rm deletes it)"
                        );
                    }
                }
            }
        }
        self.release_appended(&appended);
    }

    /// Puts a message into the log once more, unless this process did.
    fn append_again(&mut self, file: &Quarantined) -> io::Result<()> {
        if self.watch.appended.contains_key(&file.id) {
            return Ok(());
        }
        let Some(message) = file.message() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "an earlier version kept this message without its kind and its arrival",
            ));
        };
        let bytes = usize::try_from(file.bytes).unwrap_or(usize::MAX);
        let _withheld = self.behind.memory.wait_to_process(bytes);
        let Some(content) = self.behind.quarantine.read(file)? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let record = Record {
            kind: message.kind,
            received_at: message.received_at,
            message: content.into(),
        };
        let appended = self.behind.appender.append_late(&record);
        let appended = appended.map_err(io::Error::other)?;
        self.watch.appended.insert(file.id, appended);
        breathe();
        Ok(())
    }

    /// Removes messages that are in the log for good; the others are tried again.
    fn release_appended(&mut self, files: &[Quarantined]) {
        for file in files {
            let Some(appended) = self.watch.appended.get(&file.id) else {
                continue;
            };
            let synced = appended.sync();
            match synced.and_then(|()| self.behind.quarantine.discard(file)) {
                Ok(()) => {
                    self.watch.appended.remove(&file.id);
                    tracing::info!(
                        id = file.id,
                        "processing again a message that was in quarantine"
                    );
                }
                Err(error) => tracing::warn!(
                    id = file.id, %error,
                    "a message is processed again, and can't leave the quarantine yet"
                ),
            }
        }
    }
}
