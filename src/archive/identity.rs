//! What tells a store from every other.
//!
//! Invariant: no credential is in it. It is written to disk and shown.

use serde::{Deserialize, Serialize};

use super::variables::without_credentials;

/// A store. The same bucket's name at another endpoint or in another account is another bucket.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StoreIdentity {
    pub url: String,
    /// Where the store is, if not where its cloud is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// Azure's containers have names of their own only within an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
}

impl StoreIdentity {
    pub(super) fn new(url: String, endpoint: Option<&str>, account: Option<&str>) -> Self {
        let endpoint = endpoint.map(without_credentials);
        Self {
            url,
            endpoint: endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_owned()),
            account: account.map(str::to_owned),
        }
    }
}
