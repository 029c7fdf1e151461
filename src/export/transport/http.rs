//! OTLP over HTTP, as protobuf.
//!
//! Invariant: a redirect is not followed, since credentials would go with it; of an answer no more
//! than [`MAX_ANSWER_BYTES`] is read.

use std::{fmt, io::Write as _, time::Duration};

use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use reqwest::{
    Certificate, Client, Identity, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect::Policy,
};
use url::Url;

use super::{
    super::{
        ExportSetupError,
        failure::{Failure, Trouble},
        settings::OtlpSettings,
        tls_files::TlsMaterial,
    },
    USER_AGENT,
};

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
/// Room for a long explanation.
const MAX_ANSWER_BYTES: usize = 64 << 10;

pub(in crate::export) struct Http {
    client: Client,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
    gzip: bool,
}

impl Http {
    pub(super) fn new(
        settings: &OtlpSettings,
        tls: Option<TlsMaterial>,
    ) -> Result<Self, ExportSetupError> {
        // NOTE: a call in vain closes a connection of HTTP/1. One of HTTP/2 would stay, and could
        // lead to a machine that is gone.
        let builder = Client::builder()
            .http1_only()
            .user_agent(USER_AGENT)
            .redirect(Policy::none());
        let builder = match tls {
            // The system's certificates are not needed, and an image may have none.
            None => builder.tls_certs_only([]),
            Some(material) => {
                let builder = match material.ca {
                    Some(pem) => {
                        let trusted = Certificate::from_pem_bundle(&pem);
                        builder.tls_certs_only(trusted.map_err(ExportSetupError::client)?)
                    }
                    None => builder,
                };
                match material.identity {
                    Some(identity) => {
                        let pem = [identity.certificate, identity.key].join(&b'\n');
                        let identity = Identity::from_pem(&pem);
                        builder.identity(identity.map_err(ExportSetupError::client)?)
                    }
                    None => builder,
                }
            }
        };
        let mut headers = settings.headers.clone();
        headers.insert(CONTENT_TYPE, PROTOBUF);
        Ok(Self {
            client: builder.build().map_err(ExportSetupError::client)?,
            url: settings.endpoint.url.clone(),
            headers,
            timeout: settings.timeout,
            gzip: settings.gzip,
        })
    }

    pub(super) async fn send(&self, body: Bytes) -> Result<Bytes, Failure> {
        let encoding = self.gzip.then_some(GZIP);
        tokio::time::timeout(self.timeout, self.post(body, encoding))
            .await
            .unwrap_or_else(|_| {
                let detail = format!("no answer within {:?}", self.timeout);
                Err(Failure::new(Trouble::Unreachable, &detail))
            })
    }

    /// The time limit is the caller's.
    pub(in crate::export) async fn post(
        &self,
        body: Bytes,
        encoding: Option<HeaderValue>,
    ) -> Result<Bytes, Failure> {
        let mut headers = self.headers.clone();
        if let Some(encoding) = encoding {
            headers.insert(CONTENT_ENCODING, encoding);
        }
        let request = self.client.post(self.url.clone());
        let sent = request.headers(headers).body(body).send();
        // NOTE: an error names the URL, whose query may hold a credential.
        let response = sent
            .await
            .map_err(|error| Failure::unreachable(&error.without_url()))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_body(response).await;
        if !status.is_success() {
            return Err(Failure::from_http(status, &headers, &body));
        }
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        match kind {
            Some(kind) if kind.starts_with(b"text/html") => Err(Failure::new(
                Trouble::WrongAddress,
                "the answer is a web page",
            )),
            // Whatever else it says, it has taken the message.
            Some(kind) if !kind.starts_with(PROTOBUF.as_bytes()) => Ok(Bytes::new()),
            _ => Ok(body),
        }
    }
}

pub(super) fn compress(request: &Bytes) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing into memory does not fail.
    drop(encoder.write_all(request));
    encoder.finish().unwrap_or_default().into()
}

/// As much as there is, or may be read. The status was there before: a body that breaks off
/// changes nothing about it.
async fn read_body(mut response: Response) -> Bytes {
    let mut body = BytesMut::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = MAX_ANSWER_BYTES - body.len();
        body.extend(chunk.iter().take(room));
        if body.len() == MAX_ANSWER_BYTES {
            break;
        }
    }
    body.freeze()
}

impl fmt::Debug for Http {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.url.clone();
        shown.set_query(None);
        write!(out, "Http({shown})")
    }
}
