//! `/metrics`, `/healthz` and `/readyz`.
//!
//! `/healthz` is whether to restart the process; `/readyz` is whether everything works. A store
//! that can't be reached for a while is no reason against that: messages are taken, and what they
//! become waits on disk. A store that refuses, or a task that panicked, is: somebody has to act
//! before the disk is full.
//!
//! Invariant: nothing here shows a payload, a name or a setting; it may listen on every interface.

use std::{
    fmt::Write as _,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{archive::Standing, metrics::Metrics, panics::Task, web};

/// What is shown.
pub(super) struct Health {
    pub(super) metrics: Metrics,
    /// Messages are not taken any more.
    pub(super) stopping: Arc<AtomicBool>,
    /// How writing to the store goes.
    pub(super) store: watch::Receiver<Standing>,
}

pub(super) async fn serve_health(
    health: Health,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(show_readiness))
        .with_state(Arc::new(health));
    web::serve(listener, routes, stop).await
}

async fn show_metrics(State(health): State<Arc<Health>>) -> Response {
    let failed = |error: String| {
        let error = format!("{error}\n");
        (StatusCode::INTERNAL_SERVER_ERROR, error).into_response()
    };
    let panics = health.metrics.panics();
    match panics.catch(Task::Metrics, || health.metrics.text()) {
        Ok(Ok(text)) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Ok(Err(error)) => failed(error.to_string()),
        Err(panicked) => failed(panicked.to_string()),
    }
}

async fn show_readiness(State(health): State<Arc<Health>>) -> Response {
    let store = health.store.borrow().clone();
    let (is_ready, text) = health.readiness(&store);
    if is_ready {
        text.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

impl Health {
    /// Whether everything works, and a line for each thing that does not.
    fn readiness(&self, store: &Standing) -> (bool, String) {
        let mut against = String::new();
        if self.stopping.load(Ordering::Relaxed) {
            against.push_str("stopping: messages are not taken\n");
        }
        for task in self.metrics.panics().broken() {
            let task = task.as_str();
            writeln!(against, "the {task} task panicked; the log says where").unwrap_or_default();
        }
        let mut text = String::new();
        if let Standing::Fails { trouble, .. } = store {
            let (cause, what, advice) = (trouble.as_str(), trouble.what(), trouble.advice());
            if trouble.is_lasting() {
                writeln!(against, "store refused ({cause}): {what}; {advice}")
            } else {
                writeln!(text, "store away ({cause}): {what}; payloads wait on disk")
            }
            .unwrap_or_default();
        }
        let is_ready = against.is_empty();
        let verdict = if is_ready { "ready\n" } else { "not ready\n" };
        (is_ready, format!("{verdict}{against}{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Trouble;

    fn fails(trouble: Trouble) -> Standing {
        Standing::Fails {
            trouble,
            detail: "in words of its own".to_owned(),
        }
    }

    #[test]
    fn an_outage_is_told_apart_from_a_refusal_and_from_a_panic() {
        let metrics = Metrics::new().unwrap();
        let (_, store) = watch::channel(Standing::Unknown);
        let health = Health {
            metrics: metrics.clone(),
            stopping: Arc::default(),
            store,
        };
        let ready = (true, "ready\n".to_owned());
        assert_eq!(health.readiness(&Standing::Unknown), ready);
        assert_eq!(health.readiness(&Standing::Works), ready);

        let (is_ready, text) = health.readiness(&fails(Trouble::Unreachable));
        assert!(is_ready, "{text}");
        assert!(
            text.starts_with("ready\nstore away (unreachable)"),
            "{text}"
        );

        let (is_ready, text) = health.readiness(&fails(Trouble::AccessDenied));
        assert!(!is_ready, "{text}");
        assert!(text.contains("store refused (access_denied)"), "{text}");
        assert!(text.contains("s3:PutObject"), "{text}");
        assert!(!text.contains("words of its own"), "{text}");

        metrics.panics().note(Task::Upload);
        let (is_ready, text) = health.readiness(&Standing::Works);
        assert!(!is_ready, "{text}");
        assert!(text.contains("the upload task panicked"), "{text}");
        metrics.panics().works(Task::Upload);
        assert_eq!(health.readiness(&Standing::Works), ready);

        health.stopping.store(true, Ordering::Relaxed);
        assert!(!health.readiness(&Standing::Works).0);
    }
}
