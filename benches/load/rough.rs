//! Clients that core is not: many, slow, gone in the middle.

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use fastrand::Rng;
use hyper::body::{Body, Frame};
use spanplane::{
    client::{CORE_DEADLINE, InspectorClient, dial},
    record::RecordKind,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::{
    Code, Status,
    codegen::{Service as _, http},
};

use crate::{payload::Shape, xr::Xr};

/// Where nothing is measured, everything has to arrive.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
const EMIT_REQUEST: &str =
    "http://inspector/crossplane.pipeline.v1alpha1.PipelineInspectorService/EmitRequest";

/// What became of calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) acknowledged: usize,
    /// Core's deadline passed.
    pub(crate) missed: usize,
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<String>,
    /// Of those that were acknowledged.
    pub(crate) longest: Duration,
}

impl Calls {
    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.missed += other.missed;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.longest = self.longest.max(other.longest);
    }

    pub(crate) fn note(&mut self, took: Duration, answer: Result<(), Status>) {
        match answer {
            Ok(()) => {
                self.acknowledged += 1;
                self.longest = self.longest.max(took);
            }
            Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {
                self.missed += 1;
            }
            Err(status) => {
                self.failed += 1;
                self.first_failure.get_or_insert_with(|| status.to_string());
            }
        }
    }
}

/// An XR whose requests have about so many bytes, and its responses a third of that.
pub(crate) fn xrs_of(bytes: usize, count: usize) -> Vec<Xr> {
    let shape = Shape {
        resources: (bytes / 10_000).max(1),
        request_bytes: bytes,
    };
    Xr::make(count, shape)
}

/// The request and the response of a step, in a reconcile of its own.
fn step_of(xr: &Xr) -> [(RecordKind, Bytes); 2] {
    let reconcile = xr.reconcile();
    let step = reconcile.step(0);
    [RecordKind::Request, RecordKind::Response].map(|kind| (kind, step.message(kind)))
}

/// A step of each XR at once, over so many connections.
pub(crate) async fn at_once(
    socket: &Path,
    xrs: Vec<Xr>,
    connections: usize,
) -> anyhow::Result<Calls> {
    let clients: Vec<_> = (0..connections)
        .map(|_| InspectorClient::new(socket.to_owned(), PATIENCE))
        .collect();
    let mut calls = JoinSet::new();
    for (client, xr) in clients.iter().cycle().zip(&xrs) {
        let (mut client, messages) = (client.clone(), step_of(xr));
        calls.spawn(async move {
            let mut seen = Calls::default();
            for (kind, message) in messages {
                let begun = Instant::now();
                let answer = client.emit(kind, message).await;
                seen.note(begun.elapsed(), answer);
            }
            seen
        });
    }
    let mut seen = Calls::default();
    while let Some(call) = calls.join_next().await {
        seen.add(call?);
    }
    Ok(seen)
}

/// One message after the other with core's deadline, as core sends them, for so long.
pub(crate) async fn like_core(socket: &Path, bytes: usize, time: Duration) -> Calls {
    let xrs = xrs_of(bytes, 16);
    let mut client = InspectorClient::new(socket.to_owned(), CORE_DEADLINE);
    let mut seen = Calls::default();
    let end = Instant::now() + time;
    for xr in xrs.iter().cycle() {
        for (kind, message) in step_of(xr) {
            let begun = Instant::now();
            let answer = client.emit(kind, message).await;
            seen.note(begun.elapsed(), answer);
        }
        sleep(Duration::from_millis(10)).await;
        if Instant::now() >= end {
            break;
        }
    }
    seen
}

/// Takes every call back before it is answered, for so long; returns how many there were.
pub(crate) async fn take_back(socket: &Path, bytes: usize, time: Duration) -> usize {
    let messages: Vec<_> = xrs_of(bytes, 16).iter().flat_map(step_of).collect();
    let client = InspectorClient::new(socket.to_owned(), PATIENCE);
    let end = Instant::now() + time;
    let mut callers = JoinSet::new();
    for (seed, (kind, message)) in (0..).zip(messages) {
        let mut client = client.clone();
        callers.spawn(async move {
            let mut rng = Rng::with_seed(seed);
            let mut calls = 0;
            while Instant::now() < end {
                let call = client.emit(kind, message.clone());
                // Those that were answered before are as good.
                drop(timeout(Duration::from_micros(rng.u64(1..20_000)), call).await);
                calls += 1;
            }
            calls
        });
    }
    callers.join_all().await.into_iter().sum()
}

/// A message of which only the first half comes.
struct Half(Option<Bytes>);

impl Body for Half {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let first = self.0.take();
        first.map_or(Poll::Pending, |bytes| {
            Poll::Ready(Some(Ok(Frame::data(bytes))))
        })
    }
}

/// So many clients that send half a message of so many bytes, and another half when they are
/// refused, for as long as this lives.
pub(crate) fn slow(socket: &Path, clients: usize, bytes: usize) -> JoinSet<()> {
    let mut sent = BytesMut::new();
    sent.put_u8(0);
    sent.put_u32(u32::try_from(bytes).unwrap_or(u32::MAX));
    sent.put_bytes(b'x', bytes / 2);
    let half = sent.freeze();
    let mut slow = JoinSet::new();
    for _ in 0..clients {
        slow.spawn(send_halves(socket.to_owned(), half.clone()));
    }
    slow
}

async fn send_halves(socket: PathBuf, half: Bytes) {
    let mut channel = dial(socket);
    loop {
        let body = tonic::body::Body::new(Half(Some(half.clone())));
        let request = http::Request::post(EMIT_REQUEST)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(body);
        let ready = std::future::poll_fn(|context| channel.poll_ready(context)).await;
        let (Ok(()), Ok(request)) = (ready, request) else {
            return;
        };
        drop(channel.call(request).await);
    }
}

/// So many connections that send the beginning of a request to this address, or nothing.
pub(crate) async fn half_requests(address: &str, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut open = Vec::new();
    for number in 0..count {
        let mut stream = TcpStream::connect(address).await?;
        if number % 2 == 0 {
            stream.write_all(b"GET /heal").await?;
        }
        open.push(stream);
    }
    Ok(open)
}

/// How long a probe takes; `None` if it is not answered as it should be.
pub(crate) async fn probe(address: &str) -> Option<Duration> {
    let begun = Instant::now();
    let answered = async {
        let mut stream = TcpStream::connect(address).await?;
        let asked = "GET /healthz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";
        stream.write_all(asked.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    let answered = timeout(PATIENCE, answered).await;
    matches!(answered, Ok(Ok(true))).then(|| begun.elapsed())
}
