//! A closed reconcile → the document that stands for it.
//!
//! Pure but for reading payloads back. Must not know: where documents go.

mod document;
mod joining;

pub use self::{
    document::{DocumentReport, PayloadSource, write_document},
    joining::EarlierDocument,
};
