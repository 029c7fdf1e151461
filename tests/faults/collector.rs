//! An OTLP collector that keeps what the checks ask for, behind a proxy.
//!
//! Invariant: what it accepted is counted, also if the answer is lost on the way back.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message as _;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, transport::Server};

use crate::{
    payload::holds_canary,
    plan::CollectorFault,
    proxy::{Passage, Proxy},
};

#[derive(Debug)]
pub(crate) struct Collector {
    proxy: Proxy,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    refusal: watch::Sender<Option<Code>>,
    spans: Mutex<Spans>,
}

/// What arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    pub(crate) count: u64,
    /// Trace and span id.
    pub(crate) ids: HashSet<(Vec<u8>, Vec<u8>)>,
    /// Each with the name and the trace of a span that makes it.
    pub(crate) claims: HashMap<Claim, String>,
    /// Names of spans that give a secret away.
    pub(crate) leaks: BTreeSet<String>,
}

/// A payload event that says that something is in the store.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Claim {
    pub(crate) key: String,
    pub(crate) pointer: String,
    pub(crate) sha256: String,
}

impl Collector {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Proxy::start(listener.local_addr()?).await?;
        let shared = Arc::new(Shared {
            refusal: watch::Sender::new(None),
            spans: Mutex::default(),
        });
        let service = TraceServiceServer::new(Service(Arc::clone(&shared)))
            .max_decoding_message_size(usize::MAX);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            let server = Server::builder().add_service(service);
            // Clients come and go; the server stays until its task is dropped.
            drop(server.serve_with_incoming(incoming).await);
        });
        Ok(Self {
            proxy,
            shared,
            _serving: serving,
        })
    }

    pub(crate) fn url(&self) -> String {
        self.proxy.url()
    }

    pub(crate) fn begin(&self, fault: CollectorFault) {
        match fault {
            CollectorFault::Down => self.proxy.set(Passage::Closed),
            CollectorFault::Slow(delay) => self.proxy.set(Passage::Slow(delay)),
            CollectorFault::Cutting(after) => self.proxy.set(Passage::Cutting(after)),
            CollectorFault::Refusing(code) => {
                self.shared.refusal.send_replace(Some(code));
            }
        }
    }

    pub(crate) fn end_fault(&self) {
        self.shared.refusal.send_replace(None);
        self.proxy.set(Passage::Open);
    }

    pub(crate) fn spans(&self) -> Spans {
        self.shared.lock().clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Service(Arc<Shared>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let refusal = *self.0.refusal.borrow();
        if let Some(code) = refusal {
            return Err(Status::new(code, "told to refuse"));
        }
        let mut spans = self.0.lock();
        for resource in request.into_inner().resource_spans {
            for scope in resource.scope_spans {
                for span in scope.spans {
                    spans.note(&span);
                }
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Spans {
    fn note(&mut self, span: &Span) {
        self.count += 1;
        self.ids
            .insert((span.trace_id.clone(), span.span_id.clone()));
        for event in &span.events {
            let text = |name| text_of(&event.attributes, name);
            let state = text("crossplane.payload.state");
            if state == "stored" || state == "unchanged" {
                let claim = Claim {
                    key: text("crossplane.payload.key"),
                    pointer: text("crossplane.payload.pointer"),
                    sha256: text("crossplane.payload.sha256"),
                };
                let trace_id = text_of(&span.attributes, "crossplane.trace.id");
                let by = || format!("{} of {trace_id}, {state}", span.name);
                self.claims.entry(claim).or_insert_with(by);
            }
        }
        if holds_canary(&span.encode_to_vec()) {
            self.leaks.insert(span.name.clone());
        }
    }
}

fn text_of(attributes: &[KeyValue], name: &str) -> String {
    let attribute = attributes.iter().find(|attribute| attribute.key == name);
    let value = attribute.and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        _ => String::new(),
    }
}
