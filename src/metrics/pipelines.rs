//! What is counted about the pipelines themselves: where people look for a slow or failing
//! function before they look at a trace.
//!
//! Labels hold names that people gave: functions, compositions, steps and the names of resources
//! in a composition. Invariant: they are cut, and the SDK folds what is more than its limit of
//! label sets into one.

use std::slice;

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter},
};

use crate::{
    line::{INTERRUPTED, Line, LineStep, Severity},
    text::cut_text,
};

/// From what a cache takes to what core waits at most.
const FUNCTION_SECONDS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
const LABEL_BYTES: usize = 128;

pub(super) struct Pipelines {
    duration: Histogram<f64>,
    results: Counter<u64>,
    failures: Counter<u64>,
    dropped: Counter<u64>,
    flapping: Counter<u64>,
}

impl Pipelines {
    pub(super) fn new(meter: &Meter) -> Self {
        let count = |name: &'static str, help: &'static str| {
            meter.u64_counter(name).with_description(help).build()
        };
        Self {
            duration: meter
                .f64_histogram("spanplane_function_duration")
                .with_description("Time from a function's call to its answer, as core saw it.")
                .with_unit("s")
                .with_boundaries(FUNCTION_SECONDS.to_vec())
                .build(),
            results: count(
                "spanplane_function_results",
                "Results that functions returned, by severity.",
            ),
            failures: count(
                "spanplane_function_failures",
                "Calls that failed, returned FATAL or were never answered, by error type.",
            ),
            dropped: count(
                "spanplane_resources_dropped",
                "Resources that were desired or exist, and are not desired any more, by the step \
                 that dropped them.",
            ),
            flapping: count(
                "spanplane_flapping_fields",
                "Fields of desired resources that went from one value to another and back.",
            ),
        }
    }

    pub(super) fn count(&self, line: &Line) {
        for step in &line.steps {
            self.count_step(step);
        }
        let composition = label("composition", &line.subject.composition);
        for dropped in &line.dropped {
            let place = dropped.step.and_then(|place| usize::try_from(place).ok());
            let step = place.and_then(|place| line.steps.get(place));
            let labels = [
                composition.clone(),
                label("step", step.map_or("", |step| &step.name)),
                label("resource", &dropped.resource),
            ];
            self.dropped.add(1, &labels);
        }
        if line.flapping_count > 0 {
            self.flapping.add(line.flapping_count, &[composition]);
        }
    }

    fn count_step(&self, step: &LineStep) {
        let function = label("function", &step.function);
        if let Some(millis) = step.duration_ms {
            let function = slice::from_ref(&function);
            self.duration.record(millis / 1e3, function);
        }
        let counts = step.facts.result_counts;
        for (severity, count) in [
            (Severity::Normal, counts.normal),
            (Severity::Warning, counts.warning),
            (Severity::Fatal, counts.fatal),
        ] {
            if count > 0 {
                let severity = KeyValue::new("severity", severity.as_str());
                self.results.add(count, &[function.clone(), severity]);
            }
        }
        if let Some(error_type) = &step.error_type
            && error_type != INTERRUPTED
        {
            let error_type = label("error_type", error_type);
            self.failures.add(1, &[function, error_type]);
        }
    }
}

fn label(name: &'static str, value: &str) -> KeyValue {
    KeyValue::new(name, cut_text(value, LABEL_BYTES))
}
