//! `/metrics`, `/healthz` and `/readyz`.
//!
//! Invariant: nothing here shows a payload, a name or a setting; it may listen on every interface.

use std::{io, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, web};

/// What is shown.
pub(super) struct Health {
    pub(super) metrics: Metrics,
    /// Whether messages are taken.
    pub(super) is_ready: Box<dyn Fn() -> bool + Send + Sync>,
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
    match health.metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn show_readiness(State(health): State<Arc<Health>>) -> Response {
    if (health.is_ready)() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "messages are not taken\n").into_response()
    }
}
