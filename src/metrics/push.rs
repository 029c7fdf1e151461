//! Counters that go out on a thread of their own.
//!
//! Invariant: whoever takes them, or does not, holds nothing up: once this is finished or dropped,
//! what is being sent is given up, so that the thread ends at once.

use std::time::Duration;

use opentelemetry_sdk::{
    error::{OTelSdkError, OTelSdkResult},
    metrics::{
        PeriodicReader, SdkMeterProvider, Temporality, data::ResourceMetrics,
        exporter::PushMetricExporter,
    },
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::panics::{Panics, Task};

#[derive(Debug)]
pub(super) struct Push {
    stop: CancellationToken,
    _stops_when_dropped: DropGuard,
}

impl Push {
    pub(super) fn new<E: PushMetricExporter>(
        exporter: E,
        interval: Duration,
        panics: Panics,
    ) -> (PeriodicReader<Stoppable<E>>, Self) {
        let stop = CancellationToken::new();
        let push = Self {
            stop: stop.clone(),
            _stops_when_dropped: stop.clone().drop_guard(),
        };
        let reader = PeriodicReader::builder(Stoppable {
            exporter,
            stop,
            panics,
        });
        (reader.with_interval(interval).build(), push)
    }

    /// Sends once more, and then never again.
    pub(super) async fn finish(&self, provider: SdkMeterProvider, limit: Duration) {
        // NOTE: not a shutdown: that would end what /metrics reads from, too.
        let flush = tokio::task::spawn_blocking(move || provider.force_flush());
        // How it went was told by whom they went to.
        drop(tokio::time::timeout(limit, flush).await);
        self.stop.cancel();
    }
}

/// An exporter whose call can be given up.
#[derive(Debug)]
pub(super) struct Stoppable<E> {
    exporter: E,
    stop: CancellationToken,
    panics: Panics,
}

impl<E: PushMetricExporter> PushMetricExporter for Stoppable<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let call = self.exporter.export(metrics);
        let call = self.stop.run_until_cancelled(call);
        // NOTE: a panic would end the library's thread, and with it the pushing.
        match self.panics.catch_in(Task::Metrics, call).await {
            Ok(outcome) => outcome.unwrap_or(Err(OTelSdkError::AlreadyShutdown)),
            Err(panicked) => Err(OTelSdkError::InternalFailure(panicked.to_string())),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
    };

    use opentelemetry_sdk::Resource;

    use super::{super::Metrics, *};

    /// Never gets anything out of its hands.
    struct Stuck {
        began: mpsc::Sender<()>,
        was_given_up: Arc<AtomicBool>,
    }

    struct GivesUp<'a>(&'a AtomicBool);

    impl Drop for GivesUp<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    impl PushMetricExporter for Stuck {
        async fn export(&self, _metrics: &ResourceMetrics) -> OTelSdkResult {
            let _gives_up = GivesUp(&self.was_given_up);
            self.began.send(()).unwrap();
            future::pending().await
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
            Ok(())
        }

        fn temporality(&self) -> Temporality {
            Temporality::Cumulative
        }
    }

    #[test]
    fn what_is_being_sent_is_given_up_when_the_metrics_go() {
        let (began, starts) = mpsc::channel();
        let was_given_up = Arc::new(AtomicBool::new(false));
        let stuck = Stuck {
            began,
            was_given_up: Arc::clone(&was_given_up),
        };
        let nobody = Resource::builder_empty().build();
        let metrics = Metrics::pushing(stuck, Duration::from_millis(1), nobody).unwrap();
        starts.recv().unwrap();
        // The library waits a while for its thread to end.
        drop(metrics);
        assert!(was_given_up.load(Ordering::Relaxed));
    }
}
