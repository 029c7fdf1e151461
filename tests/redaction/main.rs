//! Redaction: every place in which a secret may be, the docs that list them, and a slow redactor
//! that the fast one has to agree with.

#![cfg(test)]

mod agreement;
mod differential;
mod docs;
mod places;
mod slow;
mod table;
mod yaml;
