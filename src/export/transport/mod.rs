//! Connections to a collector, by gRPC or HTTP, and one batch of spans over them.
//!
//! Invariant: a call ends within its timeout, whatever the collector does, and keeps no more of an
//! answer than a bounded part. Nothing is sent before the first call.

mod grpc;
mod http;

use std::sync::Arc;

use bytes::Bytes;

use self::grpc::Grpc;
pub(super) use self::{grpc::without_panic, http::Http};
use super::{
    ExportSetupError,
    failure::Failure,
    settings::{OtlpSettings, Protocol},
    tls_files::TlsMaterial,
};
use crate::tls::install_provider;

const USER_AGENT: &str = concat!("spanplane/", env!("CARGO_PKG_VERSION"));

#[derive(Debug)]
pub(super) enum Transport {
    Grpc(Box<Grpc>),
    Http(Arc<Http>),
}

impl Transport {
    pub(super) fn new(settings: &OtlpSettings) -> Result<Self, ExportSetupError> {
        install_provider();
        let tls = if settings.endpoint.is_secure() {
            Some(TlsMaterial::read(&settings.tls)?)
        } else {
            None
        };
        Ok(match settings.endpoint.protocol {
            Protocol::Grpc => Self::Grpc(Box::new(Grpc::new(settings, tls)?)),
            Protocol::Http => Self::Http(Arc::new(Http::new(settings, tls)?)),
        })
    }

    /// A batch as it goes over the wire, as often as it has to.
    pub(super) fn encode(&self, request: Bytes) -> Bytes {
        match self {
            Self::Grpc(_) => request,
            Self::Http(http) => http.encode(request),
        }
    }

    /// Sends what was encoded, and returns the answer's bytes.
    pub(super) async fn send(&self, body: Bytes) -> Result<Bytes, Failure> {
        match self {
            Self::Grpc(grpc) => grpc.send(body).await,
            Self::Http(http) => http.send(body).await,
        }
    }

    /// What a call without an answer was made over is not used again.
    pub(super) fn hang_up(&self) {
        match self {
            Self::Grpc(grpc) => grpc.hang_up(),
            // NOTE: a call in vain closes a connection of HTTP/1.
            Self::Http(_) => {}
        }
    }
}
