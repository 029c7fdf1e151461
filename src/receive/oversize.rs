//! Counts messages over the size limit, and answers them as gRPC servers do.
//!
//! The transport refuses such a message before any handler sees it, with `OUT_OF_RANGE`. Core and
//! everybody else knows `RESOURCE_EXHAUSTED` for it. Invariant: no other answer is touched.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    Code, Status,
    codegen::{Service, http},
    server::NamedService,
};

use crate::metrics::{Metrics, Refusal};

#[derive(Clone, Debug)]
pub(super) struct CountOversize<S> {
    pub(super) inner: S,
    pub(super) metrics: Metrics,
    pub(super) limit: usize,
}

impl<S: NamedService> NamedService for CountOversize<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, Request, Body> Service<Request> for CountOversize<S>
where
    S: Service<Request, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    Body: Default,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (metrics, limit) = (self.metrics.clone(), self.limit);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let is_oversize = Status::from_header_map(answer.headers())
                .is_some_and(|status| status.code() == Code::OutOfRange);
            if !is_oversize {
                return Ok(answer);
            }
            metrics.message_refused(Refusal::Oversize);
            tracing::warn!(
                limit,
                "a message is larger than --max-recv-msg-size; it was refused and is lost"
            );
            let text = format!("received message larger than max ({limit})");
            Ok(Status::resource_exhausted(text).into_http())
        })
    }
}
