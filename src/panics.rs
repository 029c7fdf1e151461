//! Panics: caught where a task begins, counted, logged, and remembered until the task works again.
//!
//! A panic is a mistake of ours or of a library's. Invariant: none goes unnoticed, and what one task
//! was doing is the most that it costs. What a panic says is logged only if it can't hold data.

use std::{
    collections::BTreeSet,
    io,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use futures_util::FutureExt as _;
use tokio::task::JoinError;

use crate::backoff::Backoff;

/// Places that are logged as errors, each once; those beyond are told at debug level.
const LOGGED_PLACES: usize = 64;

/// What a panic can interrupt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Task {
    /// Answering core.
    Receive,
    /// Syncing the spool to disk.
    Sync,
    /// Making objects, index lines and spans of messages.
    Publish,
    /// Sending to the store.
    Upload,
    /// Finding out whether the store can be written to.
    Check,
    /// Sending spans.
    Export,
    /// Serving `/metrics`, `/healthz` and `/readyz`, and pushing metrics.
    Metrics,
    Viewer,
}

impl Task {
    pub const ALL: [Self; 8] = [
        Self::Receive,
        Self::Sync,
        Self::Publish,
        Self::Upload,
        Self::Check,
        Self::Export,
        Self::Metrics,
        Self::Viewer,
    ];

    /// The value of a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Sync => "sync",
            Self::Publish => "publish",
            Self::Upload => "upload",
            Self::Check => "check",
            Self::Export => "export",
            Self::Metrics => "metrics",
            Self::Viewer => "viewer",
        }
    }
}

/// Its work was interrupted by a panic.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the {} task panicked; this is a bug", .0.as_str())]
pub struct Panicked(pub Task);

/// The panics of every task.
#[derive(Clone, Debug, Default)]
pub struct Panics(Arc<[OfTask; Task::ALL.len()]>);

#[derive(Debug, Default)]
struct OfTask {
    count: AtomicU64,
    /// It has not worked since.
    is_broken: AtomicBool,
}

impl Panics {
    /// Runs a task, or a part of one.
    ///
    /// NOTE: what the work shares with others has to be fit for use after any of its steps.
    pub fn catch<T>(&self, task: Task, work: impl FnOnce() -> T) -> Result<T, Panicked> {
        let outcome = panic::catch_unwind(AssertUnwindSafe(work));
        outcome.map_err(|_| self.note(task))
    }

    /// The same for work that waits.
    pub async fn catch_in<T>(
        &self,
        task: Task,
        work: impl Future<Output = T>,
    ) -> Result<T, Panicked> {
        let outcome = AssertUnwindSafe(work).catch_unwind().await;
        outcome.map_err(|_| self.note(task))
    }

    /// Does something again, after a pause, until no panic interrupts it.
    pub async fn despite<T, W: Future<Output = T>>(
        &self,
        task: Task,
        backoff: Backoff,
        mut work: impl FnMut() -> W,
    ) -> T {
        let mut tries = 0;
        loop {
            if let Ok(done) = self.catch_in(task, async { work().await }).await {
                self.works(task);
                return done;
            }
            tokio::time::sleep(backoff.pause(tries)).await;
            tries += 1;
        }
    }

    /// A task panicked, and somebody caught it.
    pub fn note(&self, task: Task) -> Panicked {
        let of_task = self.of(task);
        of_task.count.fetch_add(1, Ordering::Relaxed);
        if !of_task.is_broken.swap(true, Ordering::Relaxed) {
            tracing::error!(
                task = task.as_str(),
                "a task panicked; this is a bug, please report it"
            );
        }
        Panicked(task)
    }

    /// For work that runs inside a task of a library, which catches panics without telling.
    pub(crate) fn witness(&self, task: Task) -> Witness {
        Witness {
            panics: self.clone(),
            task,
        }
    }

    /// A task did its work.
    pub fn works(&self, task: Task) {
        let is_broken = &self.of(task).is_broken;
        if is_broken.load(Ordering::Relaxed) && is_broken.swap(false, Ordering::Relaxed) {
            tracing::info!(task = task.as_str(), "a task that panicked works again");
        }
    }

    /// How often each task panicked.
    pub fn counts(&self) -> impl Iterator<Item = (Task, u64)> {
        let counts = Task::ALL.into_iter().zip(self.0.iter());
        counts.map(|(task, of_task)| (task, of_task.count.load(Ordering::Relaxed)))
    }

    /// The tasks that panicked and have not worked since.
    pub fn broken(&self) -> impl Iterator<Item = Task> {
        let tasks = Task::ALL.into_iter().zip(self.0.iter());
        let broken = tasks.filter(|(_, of_task)| of_task.is_broken.load(Ordering::Relaxed));
        broken.map(|(task, _)| task)
    }

    fn of(&self, task: Task) -> &OfTask {
        #[expect(clippy::indexing_slicing, reason = "there is one of each task")]
        &self.0[task as usize]
    }
}

/// Counts the panic that drops it. Runtimes drop what a task was doing while its panic unwinds.
#[derive(Debug)]
pub(crate) struct Witness {
    panics: Panics,
    task: Task,
}

impl Drop for Witness {
    fn drop(&mut self) {
        if thread::panicking() {
            self.panics.note(self.task);
        }
    }
}

/// Work that was done elsewhere panicked, or was given up. A panic goes on where the work is waited
/// for, so that it is caught and counted where its task begins.
pub fn go_on_with(error: JoinError) -> io::Error {
    match error.try_into_panic() {
        Ok(panic) => panic::resume_unwind(panic),
        Err(given_up) => io::Error::other(given_up),
    }
}

/// Does work that may take a while on another thread, where it holds up nobody. A panic goes on here.
///
/// The library's own tests wait for that thread at once: a simulation has to be the same each time.
pub async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    #[cfg(test)]
    return std::thread::spawn(work)
        .join()
        .map_or_else(|panic| panic::resume_unwind(panic), Ok);
    #[cfg(not(test))]
    tokio::task::spawn_blocking(work).await.map_err(go_on_with)
}

/// Has every panic of this process logged, in place of what the standard library prints.
pub fn log_panics() {
    panic::set_hook(Box::new(log));
}

fn log(panic: &PanicHookInfo<'_>) {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

    let place = panic.location().map(ToString::to_string);
    let place = place.unwrap_or_default();
    let thread = thread::current();
    let thread = thread.name().unwrap_or_default();
    // NOTE: a message that was put together may hold a piece of a payload, or a credential.
    let message = panic.payload().downcast_ref::<&'static str>();
    let message = message.copied().unwrap_or_default();
    let is_news = {
        let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < LOGGED_PLACES && logged.insert(place.clone())
    };
    if is_news {
        tracing::error!(place, thread, message, "panicked");
    } else {
        tracing::debug!(place, thread, message, "panicked again");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_done_again_and_remembered_until_it_is_done() {
        let panics = Panics::default();
        let mut tries = 0;
        let backoff = Backoff::default();
        let done = panics.despite(Task::Export, backoff, || {
            tries += 1;
            let tries = tries;
            async move {
                assert!(tries > 2, "too early");
                tries
            }
        });
        let watched = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            panics.broken().collect::<Vec<_>>()
        };
        let (done, broken) = tokio::join!(done, watched);
        assert_eq!((done, broken), (3, vec![Task::Export]));
        assert_eq!(panics.broken().count(), 0);
        let counts: Vec<_> = panics.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts, [(Task::Export, 2)]);
    }

    #[tokio::test]
    async fn a_panic_in_work_that_is_done_elsewhere_counts_where_it_is_waited_for() {
        let panics = Panics::default();
        let work = async {
            let work = tokio::task::spawn_blocking(|| -> io::Result<()> { panic!("in a test") });
            work.await.unwrap_or_else(|error| Err(go_on_with(error)))
        };
        let caught = panics.catch_in(Task::Upload, work).await;
        assert!(matches!(caught, Err(Panicked(Task::Upload))), "{caught:?}");
        assert!(panics.broken().eq([Task::Upload]));
    }

    #[tokio::test]
    async fn a_panic_in_a_task_of_a_library_is_counted_and_its_end_is_not() {
        let panics = Panics::default();
        for panics_at_last in [false, true] {
            let witness = panics.witness(Task::Viewer);
            let mut library = tokio::task::JoinSet::new();
            library.spawn(async move {
                tokio::task::yield_now().await;
                assert!(!panics_at_last, "in a test");
                drop(witness);
            });
            let ended = library.join_next().await.unwrap();
            assert_eq!(ended.is_err(), panics_at_last);
            let count = panics.counts().map(|(_, count)| count).sum::<u64>();
            assert_eq!(count, u64::from(panics_at_last));
        }
        assert!(panics.broken().eq([Task::Viewer]));
    }

    #[test]
    fn tasks_are_told_apart() {
        let panics = Panics::default();
        for task in Task::ALL {
            let caught = panics.catch(task, || panic!("in a test"));
            assert_eq!(caught, Err::<(), _>(Panicked(task)));
        }
        assert!(panics.broken().eq(Task::ALL));
        assert!(panics.counts().all(|(_, count)| count == 1));
        assert_eq!(panics.catch(Task::Sync, || 7), Ok(7));
        panics.works(Task::Sync);
        assert!(!panics.broken().any(|task| task == Task::Sync));
    }
}
