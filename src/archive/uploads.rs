//! Calls to the store on behalf of a thread that does not wait for them: each ends in an
//! [`Event`].
//!
//! Invariant: every call that was started sends exactly one event, however long the store is
//! away, unless the program stops before. What fails is tried again, with pauses that grow and
//! are never the same for two; only what the store will never take is given up.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc as thread_mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{runtime::Handle, sync::mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Archive, Existing, Key, Part, Place, Put, StoreError, Trouble};
use crate::{
    bell::Bell,
    metrics::Metrics,
    reconcile::{Subject, TraceId},
    time::Timestamp,
};

/// An error that nobody knows, that came this often for one object while the store took this many
/// others, is that object's.
const STUBBORN_TRIES: u32 = 10;
const STUBBORN_OTHERS: u64 = 10;
/// Parts of an object that may wait for the store: one goes while the next is filled.
const WAITING_PARTS: usize = 1;

/// Names a piece of work.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct JobId(pub u64);

/// How a call to the store ended.
#[derive(Debug)]
pub enum Event {
    Stored {
        job: JobId,
        bytes: u64,
    },
    /// The store will never take it.
    Refused {
        job: JobId,
    },
    /// Something stands in its place already.
    Occupied {
        job: JobId,
    },
    /// It was sent in parts and broke off: it has to be written again from the start.
    BrokeOff {
        job: JobId,
    },
    /// It is not known what stands in the store.
    CouldNotLook {
        job: JobId,
    },
    /// What was looked for.
    Found {
        job: JobId,
        existing: Option<Existing>,
    },
}

/// Pauses between tries.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            longest: Duration::from_secs(15),
        }
    }
}

impl Backoff {
    /// Twice as long each time, between half and the whole of that.
    fn pause(self, tries: u32) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(tries.min(16)).unwrap_or(1));
        doubled
            .min(self.longest)
            .mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// Starts calls to the store.
#[derive(Clone, Debug)]
pub struct Uploads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    archive: Archive,
    runtime: Handle,
    tracker: TaskTracker,
    stop: CancellationToken,
    events: thread_mpsc::Sender<Event>,
    bell: Arc<Bell>,
    metrics: Metrics,
    backoff: Backoff,
    /// What is wrong with the store, if something is.
    trouble: Mutex<Option<Trouble>>,
    successes: AtomicU64,
}

impl Uploads {
    /// Events go to `events`, and `bell` is rung for each.
    pub fn new(
        archive: Archive,
        runtime: Handle,
        stop: CancellationToken,
        events: thread_mpsc::Sender<Event>,
        bell: Arc<Bell>,
        metrics: Metrics,
        backoff: Backoff,
    ) -> Self {
        Self(Arc::new(Shared {
            archive,
            runtime,
            tracker: TaskTracker::new(),
            stop,
            events,
            bell,
            metrics,
            backoff,
            trouble: Mutex::new(None),
            successes: AtomicU64::new(0),
        }))
    }

    pub fn archive(&self) -> &Archive {
        &self.0.archive
    }

    /// Nothing was tried yet.
    pub fn first_try(&self) -> Tries {
        self.0.first_try()
    }

    /// Stores an object.
    pub fn store(&self, job: JobId, key: Key, trace_id: TraceId, body: Bytes, place: Place) {
        let shared = Arc::clone(&self.0);
        self.spawn(async move {
            let mut tries = shared.first_try();
            loop {
                match shared
                    .archive
                    .put(&key, &trace_id, body.clone(), place)
                    .await
                {
                    Ok(Put::Occupied) => {
                        shared.succeeded();
                        return Event::Occupied { job };
                    }
                    Ok(Put::Stored) => {
                        shared.succeeded();
                        return Event::Stored {
                            job,
                            bytes: body.len() as u64,
                        };
                    }
                    Err(error) if shared.may_try_again(&mut tries, &error).await => {}
                    Err(error) => return refuse(job, &key, &error),
                }
            }
        });
    }

    /// Stores an object whose parts come through the returned channel.
    /// `tries` tells how often that broke off before.
    pub fn stream(
        &self,
        job: JobId,
        key: Key,
        trace_id: TraceId,
        mut tries: Tries,
    ) -> mpsc::Sender<Part> {
        let (sender, mut parts) = mpsc::channel(WAITING_PARTS);
        let shared = Arc::clone(&self.0);
        self.spawn(async move {
            let stored = shared.archive.put_parts(&key, &trace_id, &mut parts).await;
            // NOTE: the writer must not fill parts that nobody will take.
            drop(parts);
            match stored {
                Ok(Some(bytes)) => {
                    shared.succeeded();
                    Event::Stored { job, bytes }
                }
                Ok(None) => Event::BrokeOff { job },
                Err(error) => {
                    if shared.may_try_again(&mut tries, &error).await {
                        Event::BrokeOff { job }
                    } else {
                        refuse(job, &key, &error)
                    }
                }
            }
        });
        sender
    }

    /// Looks for an earlier part of a reconcile.
    pub fn find(&self, job: JobId, subject: Subject, trace_id: TraceId, around: Timestamp) {
        let shared = Arc::clone(&self.0);
        self.spawn(async move {
            let mut tries = shared.first_try();
            loop {
                match shared.archive.find(&subject, &trace_id, around).await {
                    Ok(existing) => {
                        shared.succeeded();
                        return Event::Found { job, existing };
                    }
                    // Whoever may write need not be allowed to read.
                    Err(error)
                        if error.trouble != Trouble::AccessDenied
                            && (error.trouble == Trouble::Unreachable
                                || tries.count < STUBBORN_TRIES)
                            && shared.may_try_again(&mut tries, &error).await => {}
                    Err(error) => {
                        tracing::warn!(
                            %trace_id, %error,
                            "cannot look for an earlier part; what came late is stored beside it"
                        );
                        return Event::CouldNotLook { job };
                    }
                }
            }
        });
    }

    /// Waits until no call is under way.
    pub async fn finish(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    fn spawn(&self, call: impl Future<Output = Event> + Send + 'static) {
        let shared = Arc::clone(&self.0);
        let stopped = shared.stop.clone();
        self.0.tracker.spawn_on(
            async move {
                if let Some(event) = stopped.run_until_cancelled(call).await {
                    // Nobody listens any more once the program stops.
                    drop(shared.events.send(event));
                    shared.bell.ring();
                }
            },
            &self.0.runtime,
        );
    }
}

/// How often something was tried, and how many other things worked meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Tries {
    pub count: u32,
    successes_before: u64,
}

fn refuse(job: JobId, key: &Key, error: &StoreError) -> Event {
    tracing::error!(
        %key, %error, detail = error.detail(),
        "an object is lost: the store will never take it"
    );
    Event::Refused { job }
}

impl Shared {
    fn first_try(&self) -> Tries {
        Tries {
            count: 0,
            successes_before: self.successes.load(Ordering::Relaxed),
        }
    }

    /// Pauses, unless it makes no sense to try the same again.
    async fn may_try_again(&self, tries: &mut Tries, error: &StoreError) -> bool {
        self.metrics.store_failed();
        let others = self.successes.load(Ordering::Relaxed) - tries.successes_before;
        let is_stubborn = tries.count >= STUBBORN_TRIES && others >= STUBBORN_OTHERS;
        if !error.trouble.is_transient() || is_stubborn {
            return false;
        }
        self.failed(error);
        tokio::time::sleep(self.backoff.pause(tries.count)).await;
        tries.count += 1;
        true
    }

    /// Says once that the store works again.
    fn succeeded(&self) {
        self.successes.fetch_add(1, Ordering::Relaxed);
        if self
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .is_some()
        {
            tracing::info!("the store works again");
        }
    }

    /// Says once what is wrong, and again if it is something else.
    fn failed(&self, error: &StoreError) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *trouble != Some(error.trouble) {
            *trouble = Some(error.trouble);
            tracing::warn!(
                %error, detail = error.detail(), advice = error.trouble.advice(),
                "cannot store; payloads wait in the spool"
            );
        }
    }
}
