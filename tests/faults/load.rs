//! Pipelines as core runs them: one connection to each sidecar, every call with core's deadline.
//!
//! Invariant: an XR has one reconcile at a time, and within it one call follows the other; a call
//! that failed stops nothing, and is not repeated.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use prost::Message as _;
use spanplane::{
    client::{CORE_DEADLINE, InspectorClient},
    proto::pipeline::{
        CompositionMeta, EmitRequestRequest, EmitResponseRequest, StepMeta, step_meta::Context,
    },
    record::RecordKind,
    time::{Clock as _, SystemClock},
};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    ledger::{Content, Ledger, Sent},
    payload::{API_VERSION, Call, Filling, KIND, NAMESPACE, Source},
    plan,
};

/// What all pipelines together may send: the checks take as long again for every byte.
const BYTES_PER_SECOND: u64 = if cfg!(debug_assertions) {
    1_500_000
} else {
    12_000_000
};
const RECONCILES_PER_SECOND: u32 = if cfg!(debug_assertions) { 40 } else { 120 };
/// A reconcile is published after 2 s without a message.
const INTERRUPTION: Duration = Duration::from_millis(2600);

/// Of a pipeline that stays half open: what counts is how many there are.
const HALF_OPEN_BYTES: usize = 1 << 10;

/// XRs with payloads of the same size and as many steps.
type Class = (usize, usize);

/// The XRs of all rounds; those of a class are the same from round to round.
#[derive(Debug, Default)]
pub(crate) struct World {
    idle: HashMap<Class, VecDeque<Xr>>,
}

#[derive(Debug)]
struct Xr {
    name: String,
    uid: String,
    version: u32,
    filling: Filling,
    /// Of the last reconcile.
    calls: Arc<[Call]>,
}

impl World {
    /// Makes the XRs of a round, which takes a while.
    pub(crate) fn prepare(&mut self, load: plan::Load) {
        let class = (load.bytes, load.steps);
        let idle = self.idle.entry(class).or_default();
        let filling = Filling::new(load.bytes);
        while idle.len() < load.xrs {
            idle.push_back(Xr::new(class, idle.len(), &filling));
        }
    }

    /// Sends what a round asks for; returns once the last reconcile has ended.
    pub(crate) async fn reconcile(
        &mut self,
        load: plan::Load,
        seed: u64,
        sockets: Vec<PathBuf>,
        ledger: &Arc<Ledger>,
    ) {
        let class = (load.bytes, load.steps);
        let idle = self.idle.entry(class).or_default();
        // NOTE: the others keep what they had, for a later round.
        let rest = idle.split_off(load.xrs.min(idle.len()));
        let active = Arc::new(Mutex::new(std::mem::take(idle)));
        let clients: Vec<_> = sockets
            .into_iter()
            .map(|socket| InspectorClient::new(socket, CORE_DEADLINE))
            .collect();
        let mut callers = JoinSet::new();
        for number in 0..load.callers {
            let caller = Caller {
                load,
                rng: Rng::with_seed(seed.wrapping_add(u64::from(number))),
                clients: clients.clone(),
                ledger: Arc::clone(ledger),
                xrs: Arc::clone(&active),
            };
            callers.spawn(caller.run());
        }
        callers.join_all().await;
        *idle = std::mem::take(&mut *active.lock().unwrap_or_else(PoisonError::into_inner));
        idle.extend(rest);
    }
}

/// Begins so many pipelines, each of an XR of its own, whose functions answer only when all have
/// begun.
pub(crate) async fn half_open(count: usize, seed: u64, socket: PathBuf, ledger: &Arc<Ledger>) {
    const CALLERS: usize = 16;
    const PATIENCE: Duration = Duration::from_mins(1);
    let filling = Filling::new(HALF_OPEN_BYTES);
    // NOTE: what is not acknowledged proves nothing, so that callers have more patience than core.
    let client = InspectorClient::new(socket, PATIENCE);
    let mut begun = Vec::new();
    for kind in [RecordKind::Request, RecordKind::Response] {
        let mut callers = JoinSet::new();
        let mut known = std::mem::take(&mut begun).into_iter();
        for number in 0..CALLERS {
            let mut caller = Caller {
                load: plan::Load::default(),
                rng: Rng::with_seed(seed.wrapping_add(number as u64)),
                clients: vec![client.clone()],
                ledger: Arc::clone(ledger),
                xrs: Arc::default(),
            };
            let numbers: Vec<_> = (number..count).step_by(CALLERS).collect();
            let mut pipelines: Vec<_> = known.by_ref().take(numbers.len()).collect();
            if kind == RecordKind::Request {
                let open = |number| {
                    let xr = Xr::new((HALF_OPEN_BYTES, 1), number, &filling);
                    (xr, uuid(&mut caller.rng), uuid(&mut caller.rng))
                };
                pipelines = numbers.into_iter().map(open).collect();
            }
            callers.spawn(async move {
                for (xr, trace_id, span_id) in &pipelines {
                    caller.emit_half(kind, xr, trace_id, span_id).await;
                }
                pipelines
            });
        }
        // NOTE: each caller goes on with as many as it had, if not with the same.
        begun = callers.join_all().await.into_iter().flatten().collect();
    }
}

impl Xr {
    fn new((bytes, steps): Class, number: usize, filling: &Filling) -> Self {
        let name = format!("x{bytes}-{steps}-{number}");
        let mut rng = Rng::with_seed(number as u64 + (bytes * 8 + steps) as u64 * 1000);
        let mut xr = Self {
            name,
            uid: uuid(&mut rng),
            version: 0,
            filling: filling.clone(),
            calls: Arc::new([]),
        };
        xr.change(steps, false);
        xr
    }

    fn change(&mut self, steps: usize, is_fatal: bool) {
        self.version += 1;
        let source = Source {
            xr: &self.name,
            uid: &self.uid,
            version: self.version,
            filling: &self.filling,
            is_fatal,
        };
        // Every other XR has a function that asks for more.
        let runs_twice = (self
            .uid
            .as_bytes()
            .first()
            .is_some_and(|byte| byte % 2 == 0))
        .then_some(steps.saturating_sub(1));
        self.calls = source.calls(steps, runs_twice).into();
    }
}

/// Runs reconciles, one after the other.
struct Caller {
    load: plan::Load,
    rng: Rng,
    clients: Vec<InspectorClient>,
    ledger: Arc<Ledger>,
    xrs: Arc<Mutex<VecDeque<Xr>>>,
}

impl Caller {
    async fn run(mut self) {
        let end = Instant::now() + self.load.lasts;
        while Instant::now() < end {
            let begun = Instant::now();
            let xr = self.lock().pop_front();
            let Some(mut xr) = xr else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            // Every third pipeline goes on with another sidecar. NOTE: Crossplane knows one socket, so
            // two sidecars have parts of a reconcile only if one took over from the other. What the
            // first one knew of the reconcile is in the store then, not only on its disk.
            let splits = self.clients.len() > 1 && self.rng.u32(..3) == 0;
            if splits || self.rng.f64() < self.load.changed {
                let is_fatal = self.rng.u32(..40) == 0;
                tokio::task::block_in_place(|| xr.change(self.load.steps, is_fatal));
            }
            let bytes = self.run_pipeline(&xr, splits).await;
            self.lock().push_back(xr);
            if !self.load.is_paced {
                continue;
            }
            let next = begun + pause_for(bytes) * self.load.callers;
            tokio::time::sleep_until(next.min(end)).await;
        }
    }

    /// Returns how much was sent.
    async fn run_pipeline(&mut self, xr: &Xr, splits: bool) -> usize {
        let trace_id = uuid(&mut self.rng);
        let first = self.rng.usize(..self.clients.len());
        let splits_at = splits.then(|| self.rng.usize(..xr.calls.len().max(1)));
        let interrupted_at = (self.rng.f64() < self.load.interrupted)
            .then(|| self.rng.usize(..xr.calls.len().max(1)));
        let fails_at = (self.rng.u32(..50) == 0).then(|| self.rng.usize(..xr.calls.len().max(1)));
        let mut bytes = 0;
        for (place, call) in xr.calls.iter().enumerate() {
            if interrupted_at == Some(place) && place > 0 {
                tokio::time::sleep(INTERRUPTION).await;
            }
            let moved = usize::from(splits_at.is_some_and(|at| place >= at));
            let client = (first + moved) % self.clients.len();
            let span_id = uuid(&mut self.rng);
            let meta = meta(xr, call, &trace_id, &span_id);
            let request = EmitRequestRequest {
                request: call.request.sent.clone(),
                meta: meta.clone(),
            };
            let content = Content::Payload(call.request.stored);
            let request = request.encode_to_vec();
            bytes += request.len();
            self.emit(
                client,
                &trace_id,
                &span_id,
                RecordKind::Request,
                request,
                content,
            )
            .await;

            tokio::time::sleep(Duration::from_millis(self.rng.u64(..5))).await;
            let fails = fails_at == Some(place);
            let error = if fails {
                format!("cannot run step {place}: rpc error: code = Unavailable")
            } else {
                String::new()
            };
            let (response, content) = if fails {
                (Bytes::new(), Content::Error(error.clone()))
            } else {
                let Call { response, .. } = call;
                (response.sent.clone(), Content::Payload(response.stored))
            };
            let response = EmitResponseRequest {
                response,
                error,
                meta,
            };
            let response = response.encode_to_vec();
            bytes += response.len();
            self.emit(
                client,
                &trace_id,
                &span_id,
                RecordKind::Response,
                response,
                content,
            )
            .await;
            if fails {
                break;
            }
        }
        bytes
    }

    /// Sends the request or the response of a pipeline's first call.
    async fn emit_half(&mut self, kind: RecordKind, xr: &Xr, trace_id: &str, span_id: &str) {
        let Some(call) = xr.calls.first() else { return };
        let meta = meta(xr, call, trace_id, span_id);
        let (message, stored) = match kind {
            RecordKind::Request => {
                let request = call.request.sent.clone();
                let message = EmitRequestRequest { request, meta };
                (message.encode_to_vec(), call.request.stored)
            }
            RecordKind::Response => {
                let message = EmitResponseRequest {
                    response: call.response.sent.clone(),
                    error: String::new(),
                    meta,
                };
                (message.encode_to_vec(), call.response.stored)
            }
        };
        let content = Content::Payload(stored);
        self.emit(0, trace_id, span_id, kind, message, content)
            .await;
    }

    async fn emit(
        &mut self,
        client: usize,
        trace_id: &str,
        span_id: &str,
        kind: RecordKind,
        message: Vec<u8>,
        content: Content,
    ) {
        let Some(client) = self.clients.get_mut(client) else {
            return;
        };
        let bytes = message.len();
        let answer = client.emit(kind, message.into()).await;
        let sent = Sent {
            span_id: span_id.to_owned(),
            kind,
            content,
            is_acknowledged: false,
        };
        self.ledger.note(trace_id, sent, bytes, answer);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Xr>> {
        self.xrs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time that a reconcile of this size may take, so that there are not too many.
fn pause_for(bytes: usize) -> Duration {
    let micros = bytes as u64 * 1_000_000 / BYTES_PER_SECOND;
    Duration::from_micros(micros).max(Duration::from_secs(1) / RECONCILES_PER_SECOND)
}

fn meta(xr: &Xr, call: &Call, trace_id: &str, span_id: &str) -> Bytes {
    let now = SystemClock.now().as_nanos();
    let small = |number: usize| i32::try_from(number).unwrap_or_default();
    let meta = StepMeta {
        timestamp: Some(prost_types::Timestamp {
            seconds: now.div_euclid(1_000_000_000),
            nanos: i32::try_from(now.rem_euclid(1_000_000_000)).unwrap_or_default(),
        }),
        trace_id: trace_id.to_owned(),
        span_id: span_id.to_owned(),
        step_index: small(call.index),
        step_name: format!("step-{}", call.index),
        iteration: small(call.iteration),
        function_name: format!("function-{}", call.index),
        context: Some(Context::CompositionMeta(CompositionMeta {
            composition_name: "faults".to_owned(),
            composite_resource_uid: xr.uid.clone(),
            composite_resource_name: xr.name.clone(),
            composite_resource_namespace: NAMESPACE.to_owned(),
            composite_resource_api_version: API_VERSION.to_owned(),
            composite_resource_kind: KIND.to_owned(),
        })),
    };
    meta.encode_to_vec().into()
}

/// Version 4, as core makes its ids.
fn uuid(rng: &mut Rng) -> String {
    let mut text = format!("{:032x}", rng.u128(..));
    text.replace_range(12..13, "4");
    text.replace_range(16..17, "a");
    for dash in [20, 16, 12, 8] {
        text.insert(dash, '-');
    }
    text
}
