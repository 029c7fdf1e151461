//! Lets messages in as far as the budget goes.
//!
//! A gRPC message says how long it is before it comes. Until the budget has room for it, nothing
//! more of it is read, and HTTP/2 keeps the client from sending more. Invariant: from the beginning
//! of a call on, its client gets [`TIME_TO_ARRIVE`] to send one message and to end the call, and
//! only [`TIME_WHILE_OTHERS_WAIT`] if others wait; after that the call gives back what it has. Time
//! in which it waits for the budget does not count. One that waits holds no more than its stream's
//! window.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::{
    Status,
    codegen::{Service, http},
    server::NamedService,
};

use super::{
    budget::{Account, Call, OpenCall},
    pool::{Funds, Repute, Turn},
};
use crate::{
    metrics::{Metrics, Refusal},
    panics::{Task, Witness},
};

/// Core gives up after 100 ms.
const TIME_TO_ARRIVE: Duration = Duration::from_secs(10);
const TIME_WHILE_OTHERS_WAIT: Duration = Duration::from_secs(2);
/// How often it is looked whose turn it is.
const TICK: Duration = Duration::from_secs(1);
/// A flag for compression, and the length.
const PREFIX_BYTES: usize = 5;

/// Which connection a request came on.
#[derive(Clone, Debug)]
pub(super) struct CameOn(pub(super) Arc<Account>);

/// Lets messages in to a service.
#[derive(Clone, Debug)]
pub(super) struct Admission<S> {
    pub(super) inner: S,
    pub(super) metrics: Metrics,
    /// A larger message is refused by the service, and needs no room.
    pub(super) max_message_bytes: usize,
}

impl<S: NamedService> NamedService for Admission<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, R> Service<http::Request<B>> for Admission<S>
where
    S: Service<http::Request<Admitted<B>>, Response = http::Response<R>>,
    S::Future: Unpin,
    R: Default,
{
    type Response = http::Response<R>;
    type Error = S::Error;
    type Future = Arriving<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let came_on = request.extensions().get::<CameOn>();
        let account = came_on.map(|CameOn(account)| Arc::clone(account));
        let message = Arc::new(Message::default());
        let call = account.as_ref().map(Account::call);
        let answer = if matches!(call, Some(None)) {
            self.metrics.message_refused(Refusal::TooManyCalls);
            Err(Status::resource_exhausted("too many calls are under way"))
        } else {
            Ok(self.inner.call(request.map(|body| Admitted {
                body,
                max_message_bytes: self.max_message_bytes,
                message: Arc::clone(&message),
                progress: account.map_or(Progress::Passing, |account| Progress::Prefix {
                    call: account.open(),
                    seen: [0; PREFIX_BYTES],
                    count: 0,
                }),
                has_more: false,
            })))
        };
        Arriving {
            answer,
            call: call.flatten(),
            message,
            _witness: self.metrics.panics().witness(Task::Receive),
            metrics: self.metrics.clone(),
            tick: None,
            last_tick: Instant::now(),
            time: Duration::ZERO,
        }
    }
}

/// A message, from the beginning of its call to its answer.
#[derive(Debug, Default)]
struct Message {
    stage: AtomicU8,
    /// Until the message is in the log, and its answer on the way.
    funds: Mutex<Option<Funds>>,
}

/// The client is to send something: how long the message is, the message, or that this was all.
const COMING: u8 = 0;
/// It waits for its part of the budget.
const QUEUED: u8 = 1;
const COMPLETE: u8 = 2;

impl Message {
    fn let_in(&self, funds: Option<Funds>) {
        *self.funds.lock().unwrap_or_else(PoisonError::into_inner) = funds;
        self.stage.store(COMING, Ordering::Relaxed);
    }

    fn queued(&self) {
        self.stage.store(QUEUED, Ordering::Relaxed);
    }

    fn complete(&self) {
        self.stage.store(COMPLETE, Ordering::Relaxed);
    }

    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }
}

/// The body of a request, handed on as far as the budget goes.
pub(super) struct Admitted<B> {
    body: B,
    max_message_bytes: usize,
    message: Arc<Message>,
    progress: Progress,
    /// Something came behind the message.
    has_more: bool,
}

enum Progress {
    /// The length is not known yet.
    Prefix {
        call: OpenCall,
        seen: [u8; PREFIX_BYTES],
        count: usize,
    },
    /// It is; this is what came with it.
    Waiting {
        call: OpenCall,
        frame: Bytes,
        left: usize,
        turn: Turn,
    },
    /// So much is left to come; with nothing left, only the end.
    Coming { call: OpenCall, left: usize },
    /// Whatever comes is handed on.
    Passing,
    /// Whatever comes is none of the message.
    Ended,
}

impl<B: Body> Admitted<B> {
    /// Looks at what came for the length of the message; returns it unless it has to wait.
    fn look_at(
        &mut self,
        mut call: OpenCall,
        mut seen: [u8; PREFIX_BYTES],
        mut count: usize,
        mut frame: Bytes,
    ) -> Option<Bytes> {
        let before = count;
        for (place, byte) in seen.iter_mut().skip(count).zip(&frame) {
            *place = *byte;
            count += 1;
        }
        if count < PREFIX_BYTES {
            self.progress = Progress::Prefix { call, seen, count };
            return Some(frame);
        }
        let [_, length @ ..] = seen;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.max_message_bytes {
            self.complete(Progress::Passing);
            return Some(frame);
        }
        let left = self.cut(length + PREFIX_BYTES - before, &mut frame);
        if let Some(funds) = call.account().try_fund(length) {
            call.funded();
            self.message.let_in(Some(funds));
            self.coming(call, left);
            return Some(frame);
        }
        call.queued();
        self.message.queued();
        self.progress = Progress::Waiting {
            turn: call.account().fund(length),
            call,
            frame,
            left,
        };
        None
    }

    /// Leaves of a frame what belongs to a message of which so much is left; returns what is left
    /// then.
    fn cut(&mut self, left: usize, frame: &mut Bytes) -> usize {
        // NOTE: nothing was set aside for more than one message.
        self.has_more |= frame.len() > left;
        frame.truncate(left);
        left - frame.len()
    }

    fn coming(&mut self, call: OpenCall, left: usize) {
        if left == 0 && (self.has_more || self.body.is_end_stream()) {
            self.complete(Progress::Ended);
        } else {
            self.progress = Progress::Coming { call, left };
        }
    }

    fn complete(&mut self, progress: Progress) {
        self.message.complete();
        self.progress = progress;
    }
}

impl<B> Body for Admitted<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        loop {
            if let Progress::Waiting { turn, .. } = &mut this.progress {
                let funds = ready!(Pin::new(turn).poll(context));
                let Progress::Waiting {
                    mut call,
                    frame,
                    left,
                    ..
                } = std::mem::replace(&mut this.progress, Progress::Passing)
                else {
                    continue;
                };
                call.funded();
                this.message.let_in(funds);
                this.coming(call, left);
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            if matches!(this.progress, Progress::Ended) {
                return Poll::Ready(None);
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => {
                    this.complete(Progress::Ended);
                    return Poll::Ready(ended);
                }
            };
            let mut data = match frame.into_data() {
                Ok(data) => data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            };
            let handed_on = match std::mem::replace(&mut this.progress, Progress::Passing) {
                Progress::Prefix { call, seen, count } => {
                    call.account().handed_on(data.len());
                    this.look_at(call, seen, count, data)
                }
                Progress::Coming { call, left } => {
                    call.account().handed_on(data.len());
                    let left = this.cut(left, &mut data);
                    this.coming(call, left);
                    Some(data)
                }
                Progress::Waiting { .. } | Progress::Passing | Progress::Ended => Some(data),
            };
            if let Some(data) = handed_on {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.progress {
            Progress::Waiting { .. } => false,
            Progress::Ended => true,
            _ => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A message that comes, and its answer.
pub(super) struct Arriving<F> {
    answer: Result<F, Status>,
    call: Option<Call>,
    message: Arc<Message>,
    metrics: Metrics,
    tick: Option<Pin<Box<Sleep>>>,
    last_tick: Instant,
    /// In which its client was waited for.
    time: Duration,
    /// Each call is a task of a library.
    _witness: Witness,
}

impl<F> Arriving<F> {
    /// Whether the client has had its time.
    fn is_slow(&mut self, context: &mut Context<'_>) -> bool {
        let Some(call) = &self.call else {
            return false;
        };
        while self.message.stage() != COMPLETE {
            let tick = self
                .tick
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(TICK)));
            if tick.as_mut().poll(context).is_pending() {
                return false;
            }
            let now = Instant::now();
            tick.as_mut().reset(now + TICK);
            let passed = now - std::mem::replace(&mut self.last_tick, now);
            if self.message.stage() == COMING && !call.account().is_blocked() {
                self.time += passed;
            }
            let budget = call.account().budget();
            if self.time >= TIME_TO_ARRIVE
                || self.time >= TIME_WHILE_OTHERS_WAIT && budget.is_waited_for()
            {
                return true;
            }
        }
        false
    }
}

impl<F, R, E> Future for Arriving<F>
where
    F: Future<Output = Result<http::Response<R>, E>> + Unpin,
    R: Default,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let answered = match &mut this.answer {
            Ok(answer) => Pin::new(answer).poll(context),
            Err(status) => return Poll::Ready(Ok(status.clone().into_http())),
        };
        if let Poll::Ready(answer) = answered {
            if let Some(call) = &this.call {
                call.bear_fruit();
            }
            return Poll::Ready(answer);
        }
        if !this.is_slow(context) {
            return Poll::Pending;
        }
        if let Some(call) = &this.call {
            call.account().client().set_repute(Repute::Slow);
        }
        this.metrics.message_refused(Refusal::Slow);
        tracing::warn!(
            waited = ?this.time,
            "a message did not arrive in time; it was refused and is lost"
        );
        let text = format!("the message did not arrive within {:?}", this.time);
        Poll::Ready(Ok(Status::deadline_exceeded(text).into_http()))
    }
}

impl<B> fmt::Debug for Admitted<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Admitted")
    }
}

impl<F> fmt::Debug for Arriving<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Arriving")
    }
}
