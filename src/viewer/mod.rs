//! The viewer: an archive as web pages, made on the server.
//!
//! Every page is a stable address that answers a question; it works without scripts, which only
//! add comfort. Invariant: reading only, everything escaped, and bounded in bytes and in memory
//! whatever the payloads hold (`limits`): what does not fit is a link to the rest.
//!
//! Must not know: the sidecar. It sees an archive.

mod access;
mod address;
mod assets;
mod changes;
mod diff;
mod failure;
mod filter;
mod gist;
mod guard;
mod history;
mod holding;
mod limits;
mod list;
mod moved;
mod open;
mod page;
mod payload;
mod raw;
mod reconcile;
mod search;
mod step;
mod story;
mod texts;
mod words;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router, middleware,
    response::Redirect,
    routing::{MethodRouter, get},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, SemaphorePermit},
};
use tokio_util::sync::CancellationToken;

pub use self::{
    access::{Access, Token, TokenError},
    limits::Limits,
};
use self::{assets::ICON, failure::Failure, guard::AT_WORK, holding::Bodies};
use crate::{
    answers::{Answers, FindError, Reference, Scope},
    archive::Archive,
    json::Values,
    line::Line,
    memory::{Held, SharedMemory, Unlimited},
    panics::Panics,
    time::SharedClock,
    web,
};

/// Shows what an archive holds.
#[derive(Debug)]
pub struct Viewer {
    answers: Answers,
    limits: Limits,
    access: Access,
    clock: SharedClock,
    /// For requests at work.
    turns: Semaphore,
    /// For the one whose payloads are in memory.
    desk: Semaphore,
    /// What waits for clients to read it.
    bodies: Bodies,
    panics: Panics,
    /// What everybody shares that large things are done in.
    memory: Arc<dyn SharedMemory>,
}

/// Payloads may be in memory for as long as this lives.
struct Desk<'v> {
    // NOTE: what is held goes first, so that two pages never hold something.
    _memory: Held,
    _seat: Seat<'v>,
}

/// The place of the one page that may have payloads in memory.
type Seat<'v> = Option<SemaphorePermit<'v>>;

/// How long a page waits for memory; after that it says that there is none.
const MEMORY_PATIENCE: Duration = Duration::from_secs(3);

impl Viewer {
    pub fn new(archive: Archive, access: Access, clock: SharedClock) -> Self {
        Self {
            answers: Answers::new(archive),
            limits: Limits::alone(),
            access,
            clock,
            turns: Semaphore::new(AT_WORK),
            desk: Semaphore::new(1),
            bodies: Bodies::default(),
            panics: Panics::default(),
            memory: Arc::new(Unlimited),
        }
        .within(Limits::alone())
    }

    /// The same, with pages that take no more than this.
    #[must_use]
    pub fn within(self, limits: Limits) -> Self {
        Self {
            answers: self.answers.limited_to(limits.text_bytes),
            limits,
            ..self
        }
    }

    /// Has panics counted here.
    #[must_use]
    pub fn counting(mut self, panics: Panics) -> Self {
        self.panics = panics;
        self
    }

    /// Takes memory for payloads from what others need it for, too.
    #[must_use]
    pub fn sharing(mut self, memory: Arc<dyn SharedMemory>) -> Self {
        self.memory = memory;
        self
    }

    /// Answers requests until told to stop.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let panics = self.panics.clone();
        web::serve(listener, self.routes(), web::For::People, panics, stop).await
    }

    /// Its pages, without a server around them.
    #[doc(hidden)]
    pub fn routes(self) -> Router {
        let viewer = Arc::new(self);
        let icon: MethodRouter<Arc<Self>> = get(|| async { Redirect::permanent(&ICON.address) });
        Router::new()
            .route("/", get(list::show))
            .route("/rows", get(list::show_rows))
            .route("/trace/{id}", get(reconcile::show))
            .route("/trace/{id}/changes", get(changes::show))
            .route("/trace/{id}/resource", get(story::show))
            .route("/trace/{id}/step/{place}", get(step::show))
            .route("/trace/{id}/step/{place}/change", get(step::show_change))
            .route("/xr/{kind}/{namespace}/{name}", get(history::show))
            .route("/open", get(open::show))
            .route("/open/signed", get(open::sign))
            .route("/raw", get(raw::show))
            .route("/assets/{name}", get(assets::serve_asset))
            .route("/favicon.ico", icon)
            .route("/healthz", get(|| async { "ok\n" }))
            .fallback(|| async { Failure::NoPage })
            .layer(middleware::from_fn_with_state(
                Arc::clone(&viewer),
                guard::guard,
            ))
            .with_state(viewer)
    }

    /// The reconcile that is meant: by its id, or as people call it.
    async fn find(&self, text: &str) -> Result<Line, Failure> {
        let Ok(reference) = text.parse::<Reference>();
        let found = self.answers.find(&reference, &Scope::default()).await;
        match (reference, found) {
            // An id may have a slash in it, as a name has.
            (Reference::Subject(_), Err(FindError::NoSubject(_))) => {
                let id = Reference::Trace(text.to_owned());
                Ok(self.answers.find(&id, &Scope::default()).await?)
            }
            (_, found) => Ok(found?),
        }
    }

    /// For the trees that are held at once.
    fn values(&self) -> Values {
        Values::up_to(self.limits.values)
    }

    /// The same answers, within what is left of the text that may be held.
    fn answers_beside(&self, held_bytes: u64) -> Answers {
        let left = self.limits.text_bytes.saturating_sub(held_bytes);
        self.answers.clone().limited_to(left)
    }

    /// Waits until nobody else has payloads in memory, and until there is memory for those of these
    /// reconciles; `key` is of the object that is offered as it is if there is none.
    async fn take_desk(&self, key: &str, lines: &[&Line]) -> Result<Desk<'_>, Failure> {
        let seat = self.take_seat().await;
        let payloads = lines.iter().map(|line| payload_bytes(line)).sum();
        Ok(Desk {
            _memory: self.take_memory(key, payloads).await?,
            _seat: seat,
        })
    }

    /// Waits until nobody else has payloads in memory.
    async fn take_seat(&self) -> Seat<'_> {
        // It is never closed.
        self.desk.acquire().await.ok()
    }

    /// Waits a while until there is memory for so many bytes of payloads.
    async fn take_memory(&self, key: &str, payload_bytes: u64) -> Result<Held, Failure> {
        let needed = self.limits.needed_for(payload_bytes);
        let memory = tokio::time::timeout(MEMORY_PATIENCE, self.memory.hold(needed)).await;
        memory.map_err(|_| Failure::Crowded {
            key: key.to_owned(),
        })
    }
}

/// Of all payloads of a reconcile, as far as its line tells.
fn payload_bytes(line: &Line) -> u64 {
    let payloads = line
        .steps
        .iter()
        .flat_map(|step| [&step.request, &step.response]);
    payloads.flatten().map(|payload| payload.size).sum()
}
