//! Emits as Crossplane does: one lazily dialled connection to the socket, a deadline a call.

use std::{io, path::PathBuf, time::Duration};

use bytes::Bytes;
use tokio::net::UnixStream;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint, Uri},
};
use tower::service_fn;

use crate::{
    proto::pipeline::pipeline_inspector_service_client::PipelineInspectorServiceClient,
    record::RecordKind,
};

/// What Crossplane gives an emit.
pub const CORE_DEADLINE: Duration = Duration::from_millis(100);

/// A connection to a Unix socket, made when first needed.
pub fn dial(socket: PathBuf) -> Channel {
    let connect = service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move {
            let stream = UnixStream::connect(socket).await?;
            io::Result::Ok(hyper_util::rt::TokioIo::new(stream))
        }
    });
    // The address is never looked up: the connector knows the socket.
    Endpoint::from_static("http://inspector").connect_with_connector_lazy(connect)
}

/// A connection to a pipeline inspector.
#[derive(Clone, Debug)]
pub struct InspectorClient {
    service: PipelineInspectorServiceClient<Channel>,
    deadline: Duration,
}

impl InspectorClient {
    /// Connects when first needed.
    pub fn new(socket: PathBuf, deadline: Duration) -> Self {
        let service = PipelineInspectorServiceClient::new(dial(socket));
        Self {
            service: service.max_encoding_message_size(usize::MAX),
            deadline,
        }
    }

    /// Sends a message and waits for its answer.
    pub async fn emit(&mut self, kind: RecordKind, message: Bytes) -> Result<(), Status> {
        let mut request = Request::new(message);
        request.set_timeout(self.deadline);
        match kind {
            RecordKind::Request => self.service.emit_request(request).await,
            RecordKind::Response => self.service.emit_response(request).await,
        }
        .map(drop)
    }
}
