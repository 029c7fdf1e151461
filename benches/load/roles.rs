//! What this program is when it starts itself again: the server that does nothing, and the
//! collector that spans go to.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::Context as _;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use rustix::process::setpriority_process;
use spanplane::{
    metrics::{Metrics, Refusal},
    receive::{Inspector, MessageLog, MessageMemory, ReceiveLimits, Socket, serve_inspector},
    record::Record,
    time::SystemClock,
};
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

use crate::process::group;

/// The first argument of the server that does nothing.
pub(crate) const NO_OP: &str = "serve-nothing";
/// The first argument of the collector.
pub(crate) const COLLECTOR: &str = "collect-spans";

/// The niceness of who gets what CPU is left.
const LAST: i32 = 19;

/// As the program has them by default.
const MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// Answers on the program's own stack, and keeps nothing: the floor.
pub(crate) fn serve_nothing(socket: &Path) -> anyhow::Result<()> {
    let (_socket, listener) = Socket::bind(socket, 0o660)?;
    let clock = Arc::new(SystemClock);
    let inspector = Inspector::new(Nothing, clock, Metrics::new()?, Arc::default());
    let limits = ReceiveLimits {
        max_message_bytes: MESSAGE_BYTES,
        memory: MessageMemory::new(MESSAGE_BYTES, usize::MAX),
    };
    let serving = serve_inspector(inspector, listener, limits, CancellationToken::new());
    Ok(runtime()?.block_on(serving)?)
}

struct Nothing;

impl MessageLog for Nothing {
    async fn append(&self, record: Record) -> Result<(), Refusal> {
        drop(record);
        Ok(())
    }
}

/// Takes spans, and says where on its first line.
#[expect(clippy::print_stdout, reason = "whoever started it reads this")]
pub(crate) fn collect_spans() -> anyhow::Result<()> {
    setpriority_process(None, LAST)?;
    runtime()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("http://{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        let incoming = TcpListenerStream::new(listener);
        let server = Server::builder().add_service(TraceServiceServer::new(Spans));
        Ok(server.serve_with_incoming(incoming).await?)
    })
}

struct Spans;

#[tonic::async_trait]
impl TraceService for Spans {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// The collector that spans go to. It goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Collector {
    process: Child,
    pub(crate) url: String,
}

impl Collector {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COLLECTOR).stdout(Stdio::piped());
        let mut process = command.process_group(group()?).spawn()?;
        let out = process.stdout.take().context("it has no output")?;
        let mut url = String::new();
        BufReader::new(out).read_line(&mut url)?;
        let url = url.trim().to_owned();
        Ok(Self { process, url })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It ended by itself, then.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// As the one that the program answers on.
fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
