//! The pipeline inspector's service, with gRPC health and reflection beside it.
//!
//! Invariant: a message is answered after it was kept and before anything else is done with it. A
//! log that is full, or a program that is stopping, is an answer too, given at once.

use std::{
    io,
    os::unix::net::UnixListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

use super::{
    accepting::connections, admission::Admission, budget::MessageMemory, oversize::CountOversize,
};
use crate::{
    metrics::{Metrics, Refusal},
    panics::Task,
    proto::pipeline::{
        DESCRIPTORS,
        pipeline_inspector_service_server::{
            PipelineInspectorService, PipelineInspectorServiceServer,
        },
    },
    record::{Record, RecordKind},
    time::SharedClock,
};

/// What a client may send of a message before the budget has room for it: twice a usual message.
/// Measured with messages of 64 KiB to 4 MB, 1 to 16 at once: from here up to 8 MiB neither p99 nor
/// the CPU time depends on it.
pub(super) const STREAM_WINDOW: u32 = 128 * 1024;
/// As many as clients of HTTP/2 begin before they are told how many they may.
const CALLS_AT_ONCE: u32 = 100;
/// NOTE: enough for the windows of all streams. Messages that wait for the budget would else take
/// the connection's window away from those that have to be read for it to have room again.
pub(super) const CONNECTION_WINDOW: u32 = CALLS_AT_ONCE * STREAM_WINDOW;

/// Core has one. Each takes some 40 KiB, for what HTTP/2 keeps.
const MAX_CONNECTIONS: usize = 256;

/// Of those that ask for health or reflection. They are read without regard to the budget.
const MAX_QUESTION_BYTES: usize = 4 * 1024;

/// Core gives up on calls that take too long, and takes them back. HTTP/2 servers take twenty of
/// these at once for an attack and close the connection, which then costs the calls that follow;
/// it takes no more than a slow moment, and nobody but core has this socket.
const TAKEN_BACK_AT_ONCE: usize = 1024;

/// Keeps messages.
pub trait MessageLog: Send + Sync + 'static {
    /// Returns once the record is kept, or why it is not.
    fn append(&self, record: Record) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Answers Crossplane.
#[derive(Debug)]
pub struct Inspector<L> {
    log: L,
    clock: SharedClock,
    metrics: Metrics,
    stopping: Arc<AtomicBool>,
}

impl<L: MessageLog> Inspector<L> {
    /// Once `stopping` is set, everything is refused.
    pub fn new(log: L, clock: SharedClock, metrics: Metrics, stopping: Arc<AtomicBool>) -> Self {
        Self {
            log,
            clock,
            metrics,
            stopping,
        }
    }

    /// Keeps a message and answers; a panic costs this call alone.
    async fn answer(&self, kind: RecordKind, message: Bytes) -> Result<Response<Bytes>, Status> {
        let panics = self.metrics.panics();
        let kept = panics.catch_in(Task::Receive, self.keep(kind, message));
        match kept.await {
            Ok(answer) => {
                panics.works(Task::Receive);
                answer
            }
            Err(panicked) => Err(Status::internal(panicked.to_string())),
        }
    }

    async fn keep(&self, kind: RecordKind, message: Bytes) -> Result<Response<Bytes>, Status> {
        let arrived = Instant::now();
        self.metrics.message_received(kind);
        let kept = if self.stopping.load(Ordering::Relaxed) {
            Err(Refusal::ShuttingDown)
        } else {
            self.log
                .append(Record {
                    kind,
                    received_at: self.clock.now(),
                    message,
                })
                .await
        };
        match kept {
            Ok(()) => {
                self.metrics.message_acknowledged(kind, arrived.elapsed());
                Ok(Response::new(Bytes::new()))
            }
            Err(refusal) => {
                self.metrics.message_refused(refusal);
                Err(status_of(refusal))
            }
        }
    }
}

fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::SpoolFull => Status::resource_exhausted("the spool is full"),
        Refusal::DiskError => Status::resource_exhausted("the spool can't be written to"),
        Refusal::Oversize => Status::resource_exhausted("the message is too large"),
        Refusal::TooManyCalls => Status::resource_exhausted("too many calls are under way"),
        Refusal::Slow => Status::deadline_exceeded("the message did not arrive in time"),
        Refusal::ShuttingDown => Status::unavailable("shutting down"),
    }
}

#[tonic::async_trait]
impl<L: MessageLog> PipelineInspectorService for Inspector<L> {
    async fn emit_request(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.answer(RecordKind::Request, request.into_inner()).await
    }

    async fn emit_response(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.answer(RecordKind::Response, request.into_inner())
            .await
    }
}

/// Why the service ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot take over the socket")]
    Listener(#[from] io::Error),
    #[error("cannot offer gRPC reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("the gRPC server failed")]
    Server(#[from] tonic::transport::Error),
}

/// How much may be received.
#[derive(Clone, Debug)]
pub struct ReceiveLimits {
    /// A larger message is refused.
    pub max_message_bytes: usize,
    /// For all messages that are coming in at the same time. One that is larger comes in alone.
    pub memory: MessageMemory,
}

/// Serves until `stop`; calls under way are answered.
pub async fn serve_inspector<L: MessageLog>(
    inspector: Inspector<L>,
    listener: UnixListener,
    limits: ReceiveLimits,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let max_message_bytes = limits.max_message_bytes;
    let metrics = inspector.metrics.clone();
    let service =
        PipelineInspectorServiceServer::new(inspector).max_decoding_message_size(max_message_bytes);
    let (health_reporter, health) = tonic_health::server::health_reporter();
    health_reporter
        .set_serving::<PipelineInspectorServiceServer<Inspector<L>>>()
        .await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let panics = metrics.panics().clone();
    let connections = connections(listener, limits.memory.budget, MAX_CONNECTIONS, panics)?;
    Server::builder()
        .max_concurrent_streams(CALLS_AT_ONCE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_pending_accept_reset_streams(Some(TAKEN_BACK_AT_ONCE))
        .add_service(Admission {
            inner: CountOversize {
                inner: service,
                metrics: metrics.clone(),
                limit: max_message_bytes,
            },
            metrics,
            max_message_bytes,
        })
        .add_service(health.max_decoding_message_size(MAX_QUESTION_BYTES))
        .add_service(
            reflection()
                .build_v1()?
                .max_decoding_message_size(MAX_QUESTION_BYTES),
        )
        .add_service(
            reflection()
                .build_v1alpha()?
                .max_decoding_message_size(MAX_QUESTION_BYTES),
        )
        .serve_with_incoming_shutdown(connections, stop.cancelled_owned())
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use tempfile::TempDir;
    use tokio::task::JoinSet;

    use super::*;
    use crate::{client::InspectorClient, receive::Socket, time::SystemClock};

    /// A log whose disk hangs until it is told to go on.
    struct Hanging {
        hangs: tokio::sync::mpsc::Sender<()>,
        goes_on: std::sync::Mutex<mpsc::Receiver<()>>,
    }

    impl MessageLog for Hanging {
        async fn append(&self, _: Record) -> Result<(), Refusal> {
            self.hangs.try_send(()).unwrap_or_default();
            self.goes_on.lock().unwrap().recv().unwrap_or_default();
            Ok(())
        }
    }

    /// What is sent goes by this thread, which does it whenever others let it.
    async fn until_all_is_sent() {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn calls_that_core_takes_back_in_a_slow_moment_do_not_cost_the_connection() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let (_socket, listener) = Socket::bind(&path, 0o660).unwrap();
        let (hangs, mut hanging) = tokio::sync::mpsc::channel(1);
        let (go_on, goes_on) = mpsc::channel();
        let log = Hanging {
            hangs,
            goes_on: std::sync::Mutex::new(goes_on),
        };
        let clock = Arc::new(SystemClock);
        let inspector = Inspector::new(log, clock, Metrics::new().unwrap(), Arc::default());
        let stop = CancellationToken::new();
        let limits = ReceiveLimits {
            max_message_bytes: 1024,
            memory: MessageMemory::new(1 << 20, usize::MAX),
        };
        let serving = serve_inspector(inspector, listener, limits, stop.clone());
        let server = thread::spawn(|| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(serving).unwrap();
        });

        let mut client = InspectorClient::new(path, Duration::from_mins(1));
        let emit = |mut client: InspectorClient| async move {
            let message = Bytes::from_static(b"message");
            client.emit(RecordKind::Request, message).await
        };
        let mut first = JoinSet::new();
        first.spawn(emit(client.clone()));
        hanging.recv().await.unwrap();
        let mut taken_back = JoinSet::new();
        for _ in 0..100 {
            taken_back.spawn(emit(client.clone()));
        }
        until_all_is_sent().await;
        taken_back.abort_all();
        until_all_is_sent().await;
        drop(go_on);
        first.join_next().await.unwrap().unwrap().unwrap();
        let message = Bytes::from_static(b"the next one");
        client.emit(RecordKind::Request, message).await.unwrap();
        stop.cancel();
        drop(client);
        // The client's side of the connection ends on this thread.
        let ended = tokio::task::spawn_blocking(|| server.join()).await;
        ended.unwrap().unwrap();
    }
}
