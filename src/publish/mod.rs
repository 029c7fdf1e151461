//! A closed reconcile → the document that stands for it, and its line in the index.
//!
//! Pure but for reading payloads back. Must not know: where documents go.

mod contents;
mod document;
mod joining;
mod lines;
mod merging;
mod outline;

pub use self::{
    document::{DocumentReport, PayloadSource, StepPayloads, Visitor, write_document},
    joining::{Opener, join_documents},
    lines::{Before, Context, coverage_of, line_again, line_of},
};

#[cfg(test)]
mod tests;
