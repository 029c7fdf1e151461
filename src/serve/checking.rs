//! Finds out whether the store can be written to, and keeps a note of how writing goes.
//!
//! Invariant: nothing waits for this.

use std::{io, path::PathBuf, time::Duration};

use tokio::task::spawn_blocking;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    archive::{Archive, Standing, StandingNote, StoreIdentity, StoreUrl, Trouble},
    backoff::Backoff,
    config::Settings,
    metrics::Metrics,
    panics::{Panics, Task},
    time::SharedClock,
};

/// Between two checks of a store that can't be written to. Uploads try more often.
const CHECK_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_mins(1),
};
/// Whether the store has learned to write on conditions, after an upgrade or a remount.
const LOOK_FOR_CONDITIONS: Duration = Duration::from_mins(10);

/// Checks the store in the background, and notes how writing to it goes.
pub(super) fn watch_store(
    settings: &Settings,
    archive: &Archive,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    metrics: &Metrics,
    clock: &SharedClock,
) {
    let standing = archive.standing();
    metrics.observe_store(Trouble::LASTING.map(Trouble::as_str).into(), move || {
        standing.borrow().refusal().map(Trouble::as_str)
    });
    let (archive, url) = (archive.clone(), settings.store.clone());
    let place = NotePlace {
        data_dir: settings.data_dir.clone(),
        store: url.identity(&settings.store_variables),
    };
    let clock = SharedClock::clone(clock);
    let (panics, stop) = (metrics.panics().clone(), stop.clone());
    tasks.spawn(async move {
        let checking = || check_store(&archive, &url, &panics);
        let noting = || keep_note(&archive, &place, &clock, &panics);
        let both = async {
            tokio::join!(
                panics.despite(Task::Check, CHECK_AGAIN, checking),
                panics.despite(Task::Check, CHECK_AGAIN, noting)
            )
        };
        stop.run_until_cancelled(both).await
    });
}

/// Checks until the store can be written to, and whenever it seems to know no conditional writes.
async fn check_store(archive: &Archive, url: &StoreUrl, panics: &Panics) {
    let mut told = None;
    let mut tries = 0;
    loop {
        let checked = archive.check().await;
        panics.works(Task::Check);
        match checked {
            Ok(()) => {
                if told.replace(None) != Some(None) {
                    tracing::info!(store = %url, "the store can be written to");
                }
                tries = 0;
                tokio::time::sleep(LOOK_FOR_CONDITIONS).await;
                // It may have turned out only when something was written.
                while archive.knows_conditions() {
                    tokio::time::sleep(LOOK_FOR_CONDITIONS).await;
                }
            }
            Err(error) => {
                if told.replace(Some(error.trouble)) != Some(Some(error.trouble)) {
                    error.log();
                }
                tokio::time::sleep(CHECK_AGAIN.pause(tries)).await;
                tries = tries.saturating_add(1);
            }
        }
    }
}

/// Where notes are kept, and what they are about.
#[derive(Clone)]
struct NotePlace {
    data_dir: PathBuf,
    store: StoreIdentity,
}

/// Writes down how writing goes, for `spanplane health`, whenever that changes.
async fn keep_note(archive: &Archive, place: &NotePlace, clock: &SharedClock, panics: &Panics) {
    let (mut standings, mut unjoined) = (archive.standing(), archive.unjoined());
    let NotePlace { data_dir, store } = place.clone();
    on_disk(panics, move || {
        StandingNote::keep_only_of(&store, &data_dir)
    })
    .await;
    loop {
        let standing: Standing = standings.borrow_and_update().clone();
        let not_joined = unjoined.borrow_and_update().clone();
        if let Some(note) = StandingNote::of(&standing, not_joined, &place.store, clock.now()) {
            let data_dir = place.data_dir.clone();
            if on_disk(panics, move || note.write(&data_dir)).await {
                panics.works(Task::Check);
            }
        }
        let changed = tokio::select! {
            changed = standings.changed() => changed,
            changed = unjoined.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Does something about the note; tells whether it got to an end, if not to a good one.
async fn on_disk(panics: &Panics, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> bool {
    let inside = panics.clone();
    let done = spawn_blocking(move || inside.catch(Task::Check, work)).await;
    // Otherwise it panicked, which is counted, or the program stops.
    let Ok(Ok(done)) = done else { return false };
    if let Err(error) = done {
        tracing::debug!(%error, "cannot note how writing to the store goes");
    }
    true
}
