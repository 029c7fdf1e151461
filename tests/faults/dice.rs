//! What is drawn at random.

use std::time::Duration;

use fastrand::Rng;

/// One of these.
pub(crate) fn pick<T: Copy, const COUNT: usize>(rng: &mut Rng, choices: [T; COUNT]) -> T {
    const { assert!(COUNT > 0, "nothing to choose from") };
    let choice = choices.get(rng.usize(..COUNT)).copied();
    #[expect(clippy::expect_used, reason = "it was drawn from their places")]
    choice.expect("drawn from their places")
}

/// From the first up to the second, in milliseconds.
pub(crate) fn millis(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.u64(from..to))
}
