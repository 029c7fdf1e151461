//! The one TLS implementation of this program.
//!
//! Invariant: whoever makes a client calls [`install_provider`] first; clients panic without.

/// Makes ring the provider of the process. A second call changes nothing.
pub(crate) fn install_provider() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
