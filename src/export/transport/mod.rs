//! Connections to a collector, by gRPC or HTTP, and one batch of spans over them.
//!
//! Invariant: a call ends within its timeout, whatever the collector does, and keeps no more of an
//! answer than a bounded part. Nothing is sent before the first call. Certificates that were
//! replaced on disk are used from the first try after a failure: when they expire, the next call
//! fails.

mod grpc;
mod http;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use self::grpc::Grpc;
pub(super) use self::http::Http;
use super::{
    ExportSetupError,
    failure::Failure,
    settings::{OtlpSettings, Protocol},
    tls_files::TlsMaterial,
};
use crate::{panics::Panics, tls::install_provider};

const USER_AGENT: &str = concat!("spanplane/", env!("CARGO_PKG_VERSION"));

/// The way to a collector.
#[derive(Debug)]
pub(super) struct Transport {
    settings: OtlpSettings,
    /// None until the files that it needs can be read.
    built: Mutex<Option<Built>>,
}

/// A client, and the certificates that it was set up with.
#[derive(Debug)]
struct Built {
    client: Client,
    material: Option<TlsMaterial>,
}

#[derive(Clone, Debug)]
pub(super) enum Client {
    Grpc(Arc<Grpc>),
    Http(Arc<Http>),
}

impl Transport {
    /// Reads the files that the settings name. If that fails, every call does, and tries again.
    pub(super) fn new(settings: &OtlpSettings) -> Self {
        install_provider();
        let transport = Self {
            settings: settings.clone(),
            built: Mutex::new(None),
        };
        if let Err(failure) = transport.client() {
            tracing::warn!(
                endpoint = settings.endpoint(), error = %failure, advice = failure.trouble.advice(),
                "cannot set up the OTLP client yet"
            );
        }
        transport
    }

    /// The present client; a new one if there was none or its certificates changed.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let mut built = self.lock();
        if let Some(built) = &*built {
            return Ok(built.client.clone());
        }
        let new = Built::new(&self.settings).map_err(|error| Failure::not_set_up(&error))?;
        Ok(built.insert(new).client.clone())
    }

    /// A batch as it goes over the wire, as often as it has to.
    pub(super) fn encode(&self, request: Bytes) -> Bytes {
        match self.settings.endpoint.protocol {
            Protocol::Http if self.settings.gzip => http::compress(&request),
            // gRPC compresses on its own.
            Protocol::Http | Protocol::Grpc => request,
        }
    }

    /// Sends what was encoded, and returns the answer's bytes. A panic over it is counted, and fails
    /// the call.
    pub(super) async fn send(&self, body: Bytes, panics: &Panics) -> Result<Bytes, Failure> {
        let answer = match self.client()? {
            Client::Grpc(grpc) => grpc.send(body, panics).await,
            Client::Http(http) => http.send(body).await,
        };
        if answer.is_err() {
            self.take_new_certificates();
        }
        answer
    }

    /// The connection of a call that got no answer is not used again.
    pub(super) fn hang_up(&self) {
        if let Some(built) = &*self.lock() {
            match &built.client {
                Client::Grpc(grpc) => grpc.hang_up(),
                // NOTE: a call in vain closes a connection of HTTP/1.
                Client::Http(_) => {}
            }
        }
    }

    /// After a call that failed: if other certificates are on disk by now, the next call has a
    /// client with these.
    pub(super) fn take_new_certificates(&self) {
        let mut built = self.lock();
        // Files that can't be read now may be in the middle of a change.
        let material = read_material(&self.settings).ok();
        let is_new = |built: &Built| material.is_some_and(|material| material != built.material);
        if built.as_ref().is_some_and(is_new) {
            tracing::info!("using the certificates for OTLP that have changed on disk");
            *built = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Built>> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Built {
    fn new(settings: &OtlpSettings) -> Result<Self, ExportSetupError> {
        let material = read_material(settings)?;
        let tls = material.clone();
        let client = match settings.endpoint.protocol {
            Protocol::Grpc => Client::Grpc(Arc::new(Grpc::new(settings, tls)?)),
            Protocol::Http => Client::Http(Arc::new(Http::new(settings, tls)?)),
        };
        Ok(Self { client, material })
    }
}

/// None if the collector is spoken to in plain text.
fn read_material(settings: &OtlpSettings) -> Result<Option<TlsMaterial>, ExportSetupError> {
    if !settings.endpoint.is_secure() {
        return Ok(None);
    }
    Ok(Some(TlsMaterial::read(&settings.tls)?))
}
