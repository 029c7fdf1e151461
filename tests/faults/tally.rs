//! How often each fault was injected.

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: u32,
    pub(crate) kills: u32,
    pub(crate) terminations: u32,
    pub(crate) pauses: u32,
    pub(crate) reconfigurations: u32,
    pub(crate) store_faults: u32,
    pub(crate) collector_faults: u32,
    pub(crate) disk_faults: u32,
    pub(crate) clock_steps: u32,
    /// From quarantine, by command: the process was killed twice while it was at them.
    pub(crate) sent_again: u32,
}
