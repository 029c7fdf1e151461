//! A bell that wakes one thread: rung by whoever has work for it, waited for with a limit.
//!
//! Invariant: ringing never blocks and is never lost; a ring before the wait ends it at once. Who
//! rings a bell that was rung before pays for no system call.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *rung, true) {
            self.changed.notify_one();
        }
    }

    /// Waits for a ring, or until the time is up.
    pub fn wait(&self, limit: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rung, _) = self
            .changed
            .wait_timeout_while(rung, limit, |rung| !*rung)
            .unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }
}
