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

use std::{io, sync::Arc};

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
}

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

    /// Waits until nobody else has payloads in memory.
    async fn take_desk(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.desk.acquire().await.ok()
    }
}
