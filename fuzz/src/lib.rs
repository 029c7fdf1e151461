//! The fuzz targets: each takes any bytes and panics if something doesn't hold.
//!
//! `fuzz_targets/` hands them to libFuzzer; `tests/fuzz_corpus.rs` of the main crate includes this
//! file and replays the kept corpus. So nothing here may need more than the main crate's own
//! dependencies.

mod disk;
pub mod index;
mod json;
pub mod keys;
pub mod redactor;
mod script;
pub mod spool;
pub mod summariser;
pub mod viewer;
pub mod wire;

#[path = "../../tests/redaction/agreement.rs"]
mod agreement;
#[path = "../../tests/redaction/slow.rs"]
mod slow;

/// Takes any bytes.
pub type Check = fn(&[u8]);

/// Every target, by the name of its folder in `corpus/`.
pub const TARGETS: [(&str, Check); 7] = [
    ("index", index::check),
    ("keys", keys::check),
    ("redactor", redactor::check),
    ("spool", spool::check),
    ("summariser", summariser::check),
    ("viewer", viewer::check),
    ("wire", wire::check),
];
