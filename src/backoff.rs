//! Pauses between tries of something that fails.
//!
//! Invariant: each is about twice as long as the one before, up to a limit, and no two callers
//! pause for the same time, so that they don't come back together.

use std::time::Duration;

/// Pauses between tries.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            longest: Duration::from_secs(15),
        }
    }
}

impl Backoff {
    /// Twice as long each time, between half and the whole of that.
    pub(crate) fn pause(self, tries: u32) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(tries.min(16)).unwrap_or(1));
        doubled
            .min(self.longest)
            .mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// The same with another limit.
    pub(crate) fn up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::default();
        for (tries, whole) in [
            (0, 200),
            (1, 400),
            (4, 3_200),
            (7, 15_000),
            (u32::MAX, 15_000),
        ] {
            let whole = Duration::from_millis(whole);
            let pause = backoff.pause(tries);
            assert!(pause <= whole && pause >= whole / 2, "{tries}: {pause:?}");
        }
        assert!(backoff.up_to(backoff.first).pause(9) <= backoff.first);
    }
}
