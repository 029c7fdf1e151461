//! What is in memory while messages come in, with real clients on a real socket.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use tempfile::TempDir;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    codegen::{Service as _, http},
    transport::Channel,
};

use super::{Inspector, MessageLog, MessageMemory, ReceiveLimits, Socket, serve_inspector};
use crate::{
    client::{InspectorClient, dial},
    metrics::{Metrics, Refusal},
    record::{Record, RecordKind},
    time::SystemClock,
};

const MIB: usize = 1024 * 1024;
/// Longer than anything takes here, by a clock that goes on only when nothing else does.
const PATIENCE: Duration = Duration::from_mins(10);

/// A log that keeps every message in memory until it may let go.
#[derive(Clone)]
struct Holding {
    held: Arc<Semaphore>,
    let_go: Arc<Semaphore>,
}

impl MessageLog for Holding {
    async fn append(&self, record: Record) -> Result<(), Refusal> {
        self.held.add_permits(1);
        self.let_go.acquire().await.unwrap().forget();
        drop(record);
        Ok(())
    }
}

struct Server {
    folder: TempDir,
    log: Holding,
    metrics: Metrics,
    _serving: JoinSet<()>,
}

impl Server {
    fn start(in_memory_bytes: usize) -> Self {
        let folder = TempDir::new().unwrap();
        let (socket, listener) = Socket::bind(&path(&folder), 0o660).unwrap();
        let [held, let_go] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        let log = Holding { held, let_go };
        let metrics = Metrics::new().unwrap();
        let clock = Arc::new(SystemClock);
        let inspector = Inspector::new(log.clone(), clock, metrics.clone(), Arc::default());
        let limits = ReceiveLimits {
            max_message_bytes: 64 * MIB,
            memory: MessageMemory::new(in_memory_bytes, usize::MAX),
        };
        let serving = serve_inspector(inspector, listener, limits, CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            serving.await.unwrap();
            drop(socket);
        });
        Self {
            folder,
            log,
            metrics,
            _serving: tasks,
        }
    }

    fn client(&self) -> InspectorClient {
        InspectorClient::new(path(&self.folder), PATIENCE)
    }

    fn let_go_of(&self, messages: usize) {
        self.log.let_go.add_permits(messages);
    }

    /// Returns once the log holds so many more.
    async fn holds(&self, messages: u32) {
        let held = self.log.held.acquire_many(messages);
        tokio::time::timeout(PATIENCE, held)
            .await
            .unwrap()
            .unwrap()
            .forget();
    }

    /// Lets the clock go on: by then everything has come that can.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn holds_more(&self) -> bool {
        self.log.held.available_permits() > 0
    }
}

fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("socket")
}

type Emitted = Result<(), Status>;

fn emit(calls: &mut JoinSet<Emitted>, client: &InspectorClient, bytes: usize) {
    let mut client = client.clone();
    let message = Bytes::from(vec![b'x'; bytes]);
    calls.spawn(async move { client.emit(RecordKind::Request, message).await });
}

async fn all_are_taken(mut calls: JoinSet<Emitted>) {
    while let Some(call) = calls.join_next().await {
        call.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_budget_is_in_memory_and_everything_gets_in() {
    for connections in [1, 16] {
        let server = Server::start(4 * MIB);
        let clients: Vec<_> = (0..connections).map(|_| server.client()).collect();
        let mut calls = JoinSet::new();
        for client in clients.iter().cycle().take(16) {
            emit(&mut calls, client, MIB);
        }
        for _ in 0..4 {
            server.holds(4).await;
            server.settle().await;
            assert!(!server.holds_more(), "{connections} connections");
            server.let_go_of(4);
        }
        all_are_taken(calls).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_larger_than_the_budget_gets_in_alone() {
    let server = Server::start(2 * MIB);
    let mut calls = JoinSet::new();
    let client = server.client();
    for bytes in [MIB, 8 * MIB, 8 * MIB, MIB] {
        emit(&mut calls, &client, bytes);
        server.settle().await;
    }
    for _ in 0..4 {
        server.holds(1).await;
        server.settle().await;
        assert!(!server.holds_more());
        server.let_go_of(1);
    }
    all_are_taken(calls).await;
}

#[tokio::test(start_paused = true)]
async fn small_messages_do_not_wait_for_large_ones() {
    let server = Server::start(2 * MIB);
    let client = server.client();
    let mut large = JoinSet::new();
    for _ in 0..4 {
        emit(&mut large, &client, 2 * MIB);
    }
    server.holds(1).await;
    let mut small = JoinSet::new();
    for _ in 0..16 {
        emit(&mut small, &client, 64 * 1024);
    }
    server.holds(16).await;
    server.let_go_of(20);
    all_are_taken(small).await;
    all_are_taken(large).await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_do_not_block_the_connection_of_one_that_got_in() {
    let server = Server::start(2 * MIB);
    let client = server.client();
    let mut calls = JoinSet::new();
    for _ in 0..90 {
        emit(&mut calls, &client, 2 * MIB);
    }
    server.let_go_of(90);
    all_are_taken(calls).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_taken_back_give_back_their_part() {
    let server = Server::start(4 * MIB);
    let client = server.client();
    for _ in 0..20 {
        let mut calls = JoinSet::new();
        for _ in 0..16 {
            emit(&mut calls, &client, MIB);
        }
        server.holds(4).await;
        calls.shutdown().await;
    }
    let mut calls = JoinSet::new();
    for _ in 0..4 {
        emit(&mut calls, &client, MIB);
    }
    server.holds(4).await;
    server.let_go_of(4);
    all_are_taken(calls).await;
}

/// A message of which only the beginning comes.
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

/// The beginning of a message that says it has so many bytes: so many of them.
fn beginning(bytes: usize, sent: usize) -> Bytes {
    let mut begun = BytesMut::new();
    begun.put_u8(0);
    begun.put_u32(u32::try_from(bytes).unwrap());
    begun.put_bytes(b'x', sent);
    begun.freeze()
}

/// Begins a call, sends this and nothing more; returns how the call ends, if its connection lasts.
async fn emit_and_stop(channel: &mut Channel, sent: Option<Bytes>) -> Option<Code> {
    let request = http::Request::post(
        "http://inspector/crossplane.pipeline.v1alpha1.PipelineInspectorService/EmitRequest",
    )
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(tonic::body::Body::new(Half(sent)))
    .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context))
        .await
        .ok()?;
    let answer = channel.call(request).await.ok()?;
    let status = Status::from_header_map(answer.headers());
    Some(status.map_or(Code::Ok, |status| status.code()))
}

/// So many clients, with a connection each, that begin a message again and again and never end it.
fn never_finish(server: &Server, clients: usize, sent: Option<&Bytes>) -> JoinSet<()> {
    let mut slow = JoinSet::new();
    for _ in 0..clients {
        let mut channel: Channel = dial(path(&server.folder));
        let sent = sent.cloned();
        slow.spawn(async move {
            loop {
                emit_and_stop(&mut channel, sent.clone()).await;
            }
        });
    }
    slow
}

#[tokio::test(start_paused = true)]
async fn a_message_that_never_ends_does_not_keep_its_part() {
    let server = Server::start(4 * MIB);
    let mut halves = JoinSet::new();
    for _ in 0..32 {
        let mut channel: Channel = dial(path(&server.folder));
        let half = beginning(4 * MIB, 2 * MIB);
        halves.spawn(async move { emit_and_stop(&mut channel, Some(half)).await });
    }
    server.settle().await;
    let mut calls = JoinSet::new();
    emit(&mut calls, &server.client(), 4 * MIB);
    server.let_go_of(1);
    all_are_taken(calls).await;
    while let Some(code) = halves.join_next().await {
        assert_eq!(code.unwrap(), Some(Code::DeadlineExceeded));
    }
    let metrics = server.metrics.text().unwrap();
    let refused = "spanplane_messages_refused_total{reason=\"slow\"} 32";
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_message_never_begins_or_never_ends_is_refused() {
    let server = Server::start(4 * MIB);
    let begun = tokio::time::Instant::now();
    for sent in [None, Some(beginning(9, 0).slice(..3))] {
        let mut channel = dial(path(&server.folder));
        let answer = emit_and_stop(&mut channel, sent).await;
        assert_eq!(answer, Some(Code::DeadlineExceeded));
    }
    // All of the message, and not the end of the call.
    let mut channel = dial(path(&server.folder));
    let answer = emit_and_stop(&mut channel, Some(beginning(9, 9))).await;
    assert_eq!(answer, Some(Code::DeadlineExceeded));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert!(!server.holds_more());
}

#[tokio::test(start_paused = true)]
async fn a_call_has_one_message_and_what_follows_is_not_read() {
    let server = Server::start(4 * MIB);
    server.let_go_of(1);
    let two = [beginning(9, 9), beginning(4 * MIB, MIB)].concat();
    let mut channel = dial(path(&server.folder));
    let answer = emit_and_stop(&mut channel, Some(two.into())).await;
    assert!(matches!(answer, Some(Code::Ok)), "{answer:?}");
    server.holds(1).await;
    assert!(!server.holds_more());
}

#[tokio::test(start_paused = true)]
async fn however_many_connections_never_finish_a_call_core_connects_and_is_answered() {
    let half = beginning(2 * MIB, MIB);
    for sent in [None, Some(&half)] {
        let server = Server::start(4 * MIB);
        let slow = never_finish(&server, 256, sent);
        server.settle().await;
        // It lost its connection.
        let core = server.client();
        for bytes in [64 * 1024, MIB] {
            let mut calls = JoinSet::new();
            emit(&mut calls, &core, bytes);
            server.let_go_of(1);
            let taken = all_are_taken(calls);
            let soon = Duration::from_secs(30);
            tokio::time::timeout(soon, taken).await.expect("soon");
        }
        drop(slow);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_finishes_what_it_sends_goes_before_those_that_do_not() {
    let server = Server::start(4 * MIB);
    let core = server.client();
    let mut first = JoinSet::new();
    emit(&mut first, &core, MIB);
    server.let_go_of(1);
    all_are_taken(first).await;
    let half = beginning(4 * MIB, 2 * MIB);
    let slow = never_finish(&server, 200, Some(&half));
    server.settle().await;
    for _ in 0..3 {
        let mut calls = JoinSet::new();
        emit(&mut calls, &core, 4 * MIB);
        server.let_go_of(1);
        let taken = all_are_taken(calls);
        let soon = Duration::from_secs(5);
        tokio::time::timeout(soon, taken).await.expect("soon");
    }
    drop(slow);
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_what_there_is_memory_for_are_refused_and_not_those_of_others() {
    let server = Server::start(4 * MIB);
    let mut slow = JoinSet::new();
    for _ in 0..20 {
        let channel: Channel = dial(path(&server.folder));
        for _ in 0..100 {
            let mut channel = channel.clone();
            slow.spawn(async move { emit_and_stop(&mut channel, None).await });
        }
    }
    server.settle().await;
    let mut calls = JoinSet::new();
    emit(&mut calls, &server.client(), 64 * 1024);
    server.let_go_of(1);
    all_are_taken(calls).await;
    let metrics = server.metrics.text().unwrap();
    let refused = "spanplane_messages_refused_total{reason=\"too_many_calls\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(refused));
    let refused: usize = line.unwrap().parse().unwrap();
    assert!((900..=976).contains(&refused), "{refused}");
    drop(slow);
}
