//! Our HTTP transport, as the library wants it.
//!
//! Invariant: of what the library asks for only the body and its encoding are sent; address and
//! headers are the transport's.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_http::{Bytes, HttpError, Request, Response};
use reqwest::header::CONTENT_ENCODING;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::super::{failure::Failure, transport::Http};

/// Why a call failed: all that the library says is that it did.
#[derive(Clone, Debug, Default)]
pub(super) struct Complaint(Arc<Mutex<Option<Failure>>>);

impl Complaint {
    pub(super) fn take(&self) -> Option<Failure> {
        let mut failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    fn put(&self, failure: Failure) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

#[derive(Debug)]
pub(super) struct HttpClient {
    pub(super) http: Arc<Http>,
    pub(super) runtime: Handle,
    pub(super) complaint: Complaint,
}

#[tonic::async_trait]
impl opentelemetry_http::HttpClient for HttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let encoding = request.headers().get(CONTENT_ENCODING).cloned();
        let http = Arc::clone(&self.http);
        // NOTE: a call may be given up on a thread without a runtime, where its connection could
        // not be put back.
        let call = async move { http.post(request.into_body(), encoding).await };
        let call = self.runtime.spawn(call);
        match AbortOnDropHandle::new(call).await? {
            Ok(answer) => Ok(Response::new(answer)),
            Err(failure) => {
                self.complaint.put(failure.clone());
                Err(failure.into())
            }
        }
    }
}
