//! A real collector in this process, by gRPC or HTTP, that answers as it is told.
//!
//! In front of it stands a door that passes bytes on, and that can cut every connection.

use std::{
    collections::VecDeque,
    future,
    io::Read as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::{
    metrics::v1::{
        ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        metrics_service_server::{MetricsService, MetricsServiceServer},
    },
    trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
};
use prost::Message as _;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Status,
    codec::CompressionEncoding,
    metadata::MetadataMap,
    transport::{Certificate, Identity, Server, ServerTlsConfig},
};

use super::authority::{ServerTls, terminate_tls};

/// What the collector does with a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Accept,
    /// Takes all but this many, and says why.
    AcceptAllBut(i64, &'static str),
    Fail(Fault),
    /// Is overloaded, and says for how long.
    Throttle(Duration),
    /// Answers with this code, if it speaks HTTP, and these headers and words.
    Http(u16, &'static [(&'static str, &'static str)], &'static str),
    /// Never answers.
    Hang,
    /// Cuts the connection.
    Reset,
}

/// What is wrong, in either protocol's words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Unavailable,
    Exhausted,
    TooLarge,
    Invalid,
    Unauthenticated,
    Denied,
    NoSuchService,
    Internal,
    /// A status that no gRPC server may send.
    OddDetails,
}

impl Fault {
    fn grpc(self) -> Status {
        match self {
            Self::Unavailable => Status::unavailable("away"),
            Self::Exhausted => Status::resource_exhausted("queue is full"),
            Self::TooLarge => {
                Status::resource_exhausted("grpc: received message larger than max (5 vs. 4)")
            }
            Self::Invalid => Status::invalid_argument("bad span"),
            Self::Unauthenticated => Status::unauthenticated("who are you?"),
            Self::Denied => Status::permission_denied("not you"),
            Self::NoSuchService => Status::unimplemented("no such service"),
            Self::Internal => Status::internal("broken"),
            Self::OddDetails => {
                let mut headers = HeaderMap::new();
                headers.insert("grpc-status-details-bin", "!".parse().unwrap());
                let metadata = MetadataMap::from_headers(headers);
                Status::with_metadata(Code::Unavailable, "odd", metadata)
            }
        }
    }

    fn http(self) -> StatusCode {
        match self {
            Self::Unavailable | Self::OddDetails => StatusCode::SERVICE_UNAVAILABLE,
            Self::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::NoSuchService => StatusCode::NOT_FOUND,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

pub(crate) struct OtlpServer {
    url: String,
    is_grpc: bool,
    shared: Arc<Shared>,
    /// Ends with the server.
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    /// Answers so to every batch that holds a span of this name; without a name, to all.
    grudge: Mutex<Option<(&'static str, Fault)>>,
    tries: watch::Sender<Vec<HeaderMap>>,
    received: watch::Sender<Vec<ExportTraceServiceRequest>>,
    metrics: watch::Sender<Vec<ExportMetricsServiceRequest>>,
    cuts: watch::Sender<u64>,
    connections: watch::Sender<usize>,
}

impl OtlpServer {
    pub(crate) async fn start_grpc() -> Self {
        Self::start(true, None, "127.0.0.1:0").await
    }

    pub(crate) async fn start_http() -> Self {
        Self::start(false, None, "127.0.0.1:0").await
    }

    pub(crate) async fn start_grpc_tls(tls: &ServerTls) -> Self {
        Self::start(true, Some(tls), "127.0.0.1:0").await
    }

    pub(crate) async fn start_http_tls(tls: &ServerTls) -> Self {
        Self::start(false, Some(tls), "127.0.0.1:0").await
    }

    /// At an address that was free.
    pub(crate) async fn start_at(is_grpc: bool, address: &str) -> Self {
        Self::start(is_grpc, None, address).await
    }

    async fn start(is_grpc: bool, tls: Option<&ServerTls>, address: &str) -> Self {
        let shared = Arc::new(Shared::default());
        let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut behind = inner.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        if is_grpc {
            let config = tls.map(grpc_tls);
            tasks.spawn(serve_grpc(inner, config, Arc::clone(&shared)));
        } else {
            tasks.spawn(serve_http(inner, Arc::clone(&shared)));
            behind = tls.map_or(behind, |tls| terminate_tls(tls, behind));
        }
        let door = TcpListener::bind(address).await.unwrap();
        let port = door.local_addr().unwrap().port();
        tasks.spawn(keep_door(door, behind, Arc::clone(&shared)));
        let url = match tls {
            None => format!("http://127.0.0.1:{port}"),
            Some(_) => format!("https://localhost:{port}"),
        };
        Self {
            url,
            is_grpc,
            shared,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// What the next batches are answered with; those after them are taken.
    pub(crate) fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.script.lock().unwrap().extend(replies);
    }

    /// Answers so to every batch that holds a span of this name.
    pub(crate) fn bear_grudge(&self, name: &'static str, fault: Fault) {
        *self.shared.grudge.lock().unwrap() = Some((name, fault));
    }

    /// Answers so to every batch.
    pub(crate) fn bear_grudge_against_all(&self, fault: Fault) {
        self.bear_grudge("", fault);
    }

    /// Takes everything from now on.
    pub(crate) fn forgive(&self) {
        *self.shared.grudge.lock().unwrap() = None;
    }

    /// What was taken.
    pub(crate) fn received(&self) -> Vec<ExportTraceServiceRequest> {
        self.shared.received.borrow().clone()
    }

    /// Names of the spans that were taken, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let received = self.received();
        let names = received.iter().flat_map(names_of);
        names.map(ToOwned::to_owned).collect()
    }

    /// Headers of every try, taken or not.
    pub(crate) fn tries(&self) -> Vec<HeaderMap> {
        self.shared.tries.borrow().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// Waits until there were this many connections.
    pub(crate) async fn connected(&self, count: usize) {
        let mut connections = self.shared.connections.subscribe();
        connections
            .wait_for(|so_far| *so_far >= count)
            .await
            .unwrap();
    }

    /// Waits until there were this many tries.
    pub(crate) async fn tried(&self, count: usize) {
        let mut tries = self.shared.tries.subscribe();
        tries.wait_for(|tries| tries.len() >= count).await.unwrap();
    }

    /// Waits for metrics, and returns what came so far.
    pub(crate) async fn metrics(&self) -> Vec<ExportMetricsServiceRequest> {
        let mut metrics = self.shared.metrics.subscribe();
        let came = metrics.wait_for(|metrics| !metrics.is_empty()).await;
        came.unwrap().clone()
    }
}

fn names_of(request: &ExportTraceServiceRequest) -> impl Iterator<Item = &str> {
    let resources = request.resource_spans.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    let spans = scopes.flat_map(|scope| &scope.spans);
    spans.map(|span| span.name.as_str())
}

impl Shared {
    fn next_reply(&self, headers: HeaderMap) -> Reply {
        self.tries.send_modify(|tries| tries.push(headers));
        let reply = self.script.lock().unwrap().pop_front();
        reply.unwrap_or(Reply::Accept)
    }

    /// What is to be done with a batch, which is kept if it is taken.
    async fn receive(&self, headers: HeaderMap, request: ExportTraceServiceRequest) -> Reply {
        let mut reply = self.next_reply(headers);
        let grudge = *self.grudge.lock().unwrap();
        if let Some((name, fault)) = grudge
            && (name.is_empty() || names_of(&request).any(|span| span == name))
        {
            reply = Reply::Fail(fault);
        }
        if let Reply::Accept | Reply::AcceptAllBut(..) = reply {
            self.received.send_modify(|received| received.push(request));
        }
        self.act(reply).await
    }

    async fn act(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Hang => future::pending().await,
            Reply::Reset => {
                self.cuts.send_modify(|cuts| *cuts += 1);
                future::pending().await
            }
            reply => reply,
        }
    }

    async fn receive_metrics(
        &self,
        headers: HeaderMap,
        request: ExportMetricsServiceRequest,
    ) -> Reply {
        let reply = self.next_reply(headers);
        if let Reply::Accept = reply {
            self.metrics.send_modify(|metrics| metrics.push(request));
        }
        self.act(reply).await
    }
}

fn answer_of(reply: Reply) -> ExportTraceServiceResponse {
    let partial_success = match reply {
        Reply::AcceptAllBut(rejected_spans, words) => Some(ExportTracePartialSuccess {
            rejected_spans,
            error_message: words.to_owned(),
        }),
        _ => None,
    };
    ExportTraceServiceResponse { partial_success }
}

/// Passes bytes on until there is a cut.
async fn keep_door(door: TcpListener, behind: SocketAddr, shared: Arc<Shared>) {
    let mut passing = JoinSet::new();
    while let Ok((mut outer, _)) = door.accept().await {
        shared.connections.send_modify(|count| *count += 1);
        let mut cuts = shared.cuts.subscribe();
        passing.spawn(async move {
            let mut inner = TcpStream::connect(behind).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut outer, &mut inner) => {}
                _ = cuts.changed() => outer.set_zero_linger().unwrap(),
            }
        });
    }
}

fn grpc_tls(tls: &ServerTls) -> ServerTlsConfig {
    let identity = Identity::from_pem(&tls.shown.certificate, &tls.shown.key);
    let config = ServerTlsConfig::new().identity(identity);
    match &tls.clients {
        None => config,
        Some(issuer) => config.client_ca_root(Certificate::from_pem(issuer)),
    }
}

async fn serve_grpc(listener: TcpListener, tls: Option<ServerTlsConfig>, shared: Arc<Shared>) {
    let mut server = Server::builder();
    if let Some(config) = tls {
        server = server.tls_config(config).unwrap();
    }
    let traces = TraceServiceServer::from_arc(Arc::clone(&shared));
    let metrics = MetricsServiceServer::from_arc(shared);
    server
        .add_service(traces.accept_compressed(CompressionEncoding::Gzip))
        .add_service(metrics.accept_compressed(CompressionEncoding::Gzip))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
        .unwrap();
}

#[tonic::async_trait]
impl TraceService for Shared {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        let reply = self.receive(headers, request.into_inner()).await;
        refusal_of(reply)?;
        Ok(tonic::Response::new(answer_of(reply)))
    }
}

#[tonic::async_trait]
impl MetricsService for Shared {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        refusal_of(self.receive_metrics(headers, request.into_inner()).await)?;
        Ok(tonic::Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn refusal_of(reply: Reply) -> Result<(), Status> {
    match reply {
        Reply::Fail(fault) => Err(fault.grpc()),
        Reply::Throttle(after) => {
            let details = retry_info(after).into();
            Err(Status::with_details(
                Code::ResourceExhausted,
                "slower",
                details,
            ))
        }
        _ => Ok(()),
    }
}

/// A google.rpc.Status that holds a google.rpc.RetryInfo, put together by hand.
fn retry_info(after: Duration) -> Vec<u8> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Details {
        #[prost(message, repeated, tag = "3")]
        details: Vec<prost_types::Any>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Delay {
        #[prost(message, optional, tag = "1")]
        delay: Option<prost_types::Duration>,
    }
    let delay = Some(after.try_into().unwrap());
    let info = prost_types::Any {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
        value: Delay { delay }.encode_to_vec(),
    };
    let details = vec![info];
    Details { details }.encode_to_vec()
}

async fn serve_http(listener: TcpListener, shared: Arc<Shared>) {
    let router = Router::new().fallback(answer_http).with_state(shared);
    axum::serve(listener, router).await.unwrap();
}

async fn answer_http(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let is_gzip = headers
        .get("content-encoding")
        .is_some_and(|it| it == "gzip");
    let mut plain = Vec::new();
    if is_gzip {
        GzDecoder::new(&*body).read_to_end(&mut plain).unwrap();
    } else {
        plain.extend_from_slice(&body);
    }
    let plain = Bytes::from(plain);
    let (reply, answer) = if uri.path() == "/v1/metrics" {
        let request = ExportMetricsServiceRequest::decode(plain).unwrap();
        (shared.receive_metrics(headers, request).await, Vec::new())
    } else {
        assert_eq!(uri.path(), "/v1/traces");
        let request = ExportTraceServiceRequest::decode(plain).unwrap();
        let reply = shared.receive(headers, request).await;
        (reply, answer_of(reply).encode_to_vec())
    };
    let protobuf = [("content-type", "application/x-protobuf")];
    match reply {
        Reply::Fail(fault) => (fault.http(), "what is wrong").into_response(),
        Reply::Throttle(after) => {
            let after = [("retry-after", after.as_secs().to_string())];
            (StatusCode::TOO_MANY_REQUESTS, after, "slower").into_response()
        }
        Reply::Http(code, pairs, words) => {
            let mut response = words.into_response();
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            for (name, value) in pairs {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
            response
        }
        _ => (protobuf, answer).into_response(),
    }
}
