//! Files that `object_store` stages beside an object before it gives them the object's name:
//! `<object>#1`. Those of a process that died stay behind.
//!
//! Invariant: only this module knows how they are called.

/// Whether a file of this name is one that is being written, or was when a process died.
pub(super) fn is_staged(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, number)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The end of such a name.
pub(super) fn staged_suffix(number: u32) -> String {
    format!("#{number}")
}
