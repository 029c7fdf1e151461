//! What people ask, answered from the archive alone.
//!
//! [`Answers`] finds reconciles and fetches their payloads; everything else here is pure: a
//! [`Document`] is opened, its [`Pipeline`] of states read, and a [`Matrix`], a [`Story`] or a
//! comparison made of it. The command line and the viewer show the same answers.
//!
//! Must not know: how an answer looks, and who asks.

mod comparison;
mod document;
mod excerpt;
mod fate;
mod find;
mod health;
mod history;
mod inside;
mod lookback;
mod matrix;
mod pipeline;
mod reference;
mod state;
mod story;
mod streaming;
mod telling;
mod walking;

pub use self::{
    comparison::{Deed, ResourceChange, compare, compare_resource, compare_up_to, is_bookkeeping},
    document::{Document, DocumentStep, OpenError, Payload, StoredDocument},
    excerpt::Selection,
    fate::{Fate, Sequel},
    find::{Answers, FindError, PayloadsError, Scope},
    health::{Example, Finding, Health, Oddity},
    history::{News, asked_for_by, news, resources_named},
    inside::{Form, Head, Outline, PartOutline, StepContents, ValueAt},
    lookback::{called, subject_of},
    matrix::{Cell, Mark, Matrix, Row, find},
    pipeline::{Pipeline, Stage},
    reference::{Reference, SubjectName},
    state::{Resource, State},
    story::{Moment, Reason, Story},
    streaming::ValueStream,
    telling::{
        TOLD_CONDITIONS, tell_asked_last, tell_existence, tell_fate, tell_moment, tell_readiness,
        tell_sequel,
    },
};
