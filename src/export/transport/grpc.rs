//! OTLP over gRPC.
//!
//! Messages pass as bytes, so that one is encoded once however often it is tried. Invariant: after
//! a call without an answer the next one gets a new connection, since the old one may lead to a
//! machine that is gone.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::{Buf as _, BufMut as _, Bytes};
use reqwest::header::HeaderMap;
use tonic::{
    Request, Response, Status,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    metadata::MetadataMap,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{
    super::{
        ExportSetupError,
        failure::{Failure, Trouble},
        settings::OtlpSettings,
        tls_files::TlsMaterial,
    },
    USER_AGENT,
};
use crate::panics::{Panics, Task};

const TRACES_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Notices a peer that went away between two calls.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

pub(in crate::export) struct Grpc {
    endpoint: Endpoint,
    /// Made at the first call, since it needs the runtime.
    channel: Mutex<Option<Channel>>,
    headers: HeaderMap,
    timeout: Duration,
    gzip: bool,
}

impl Grpc {
    pub(super) fn new(
        settings: &OtlpSettings,
        tls: Option<TlsMaterial>,
    ) -> Result<Self, ExportSetupError> {
        let mut endpoint = Endpoint::from_shared(settings.endpoint.url.to_string())
            .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
            .map_err(ExportSetupError::client)?
            .connect_timeout(settings.timeout)
            .tcp_keepalive(Some(TCP_KEEPALIVE));
        if let Some(material) = tls {
            let mut config = ClientTlsConfig::new();
            config = match material.ca {
                Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
                None => config.with_native_roots(),
            };
            if let Some(identity) = material.identity {
                config = config.identity(Identity::from_pem(identity.certificate, identity.key));
            }
            endpoint = endpoint
                .tls_config(config)
                .map_err(ExportSetupError::client)?;
        }
        Ok(Self {
            endpoint,
            channel: Mutex::new(None),
            headers: settings.headers.clone(),
            timeout: settings.timeout,
            gzip: settings.gzip,
        })
    }

    pub(super) async fn send(&self, body: Bytes, panics: &Panics) -> Result<Bytes, Failure> {
        // NOTE: tonic panics when the details of a status are not base64, which is the collector's
        // doing: the call failed, like others.
        let call = panics.catch_in(Task::Export, self.call(self.channel(), body));
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::new(
                Trouble::Failing,
                "the answer is not what gRPC allows",
            )),
            Err(_) => {
                self.hang_up();
                let detail = format!("no answer within {:?}", self.timeout);
                Err(Failure::new(Trouble::Unreachable, &detail))
            }
        }
    }

    pub(in crate::export) fn channel(&self) -> Channel {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel
            .get_or_insert_with(|| self.endpoint.connect_lazy())
            .clone()
    }

    /// The next call gets a new connection.
    pub(super) fn hang_up(&self) {
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn call(&self, channel: Channel, body: Bytes) -> Result<Bytes, Failure> {
        let mut client = tonic::client::Grpc::new(channel);
        if self.gzip {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        client
            .ready()
            .await
            .map_err(|error| Failure::unreachable(&error))?;
        let mut request = Request::new(body);
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        let path = PathAndQuery::from_static(TRACES_PATH);
        let answer = client.unary(request, path, BytesCodec).await;
        answer
            .map(Response::into_inner)
            .map_err(|status| Failure::from_grpc(&status))
    }
}

impl fmt::Debug for Grpc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Grpc({})", self.endpoint.uri())
    }
}

/// Hands messages through as they are.
#[derive(Clone, Copy, Debug)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
