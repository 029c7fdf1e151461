//! What is looked up whenever somebody asks for the metrics.

use opentelemetry::KeyValue;

use super::Metrics;

impl Metrics {
    pub(super) fn observe_panics(&self) {
        let panics = self.panics().clone();
        self.0
            .meter
            .u64_observable_counter("spanplane_panics")
            .with_description("Panics that were caught, by task; each is a bug.")
            .with_callback(move |counter| {
                for (task, count) in panics.counts() {
                    counter.observe(count, &[KeyValue::new("task", task.as_str())]);
                }
            })
            .build();
    }

    /// Shows which of these causes, if any, makes the store refuse what is written to it.
    pub fn observe_store(
        &self,
        causes: Vec<&'static str>,
        refused_for: impl Fn() -> Option<&'static str> + Send + Sync + 'static,
    ) {
        self.0
            .meter
            .u64_observable_gauge("spanplane_store_refused")
            .with_description(
                "1 while the store refuses writes for a cause that lasts until somebody removes it.",
            )
            .with_callback(move |gauge| {
                let refused_for = refused_for();
                for cause in &causes {
                    let is_it = u64::from(refused_for == Some(*cause));
                    gauge.observe(is_it, &[KeyValue::new("cause", *cause)]);
                }
            })
            .build();
    }
}
