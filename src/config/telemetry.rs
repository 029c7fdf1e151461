//! What is sent by OTLP, from the standard variables. Invariant: every mistake in them is told.

use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::export::{Lookup, OtlpSettings, Sampler, Signal, resource_from_variables};

/// What the standard variables of OpenTelemetry say.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Where spans go, if anywhere.
    pub traces: Option<OtlpSettings>,
    /// Where the sidecar's own metrics go, besides being served.
    pub metrics: Option<OtlpSettings>,
    pub resource: Resource,
    pub sampler: Sampler,
}

impl Telemetry {
    pub(super) fn from_variables(lookup: Lookup<'_>) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        let traces = collect(
            OtlpSettings::from_variables(lookup, Signal::Traces),
            &mut mistakes,
        );
        let metrics = collect(
            OtlpSettings::from_variables(lookup, Signal::Metrics),
            &mut mistakes,
        );
        let resource = collect(resource_from_variables(lookup), &mut mistakes);
        let sampler = collect(Sampler::from_variables(lookup), &mut mistakes);
        // What both signals share is wrong only once.
        mistakes.dedup();
        match (traces, metrics, resource, sampler) {
            (Some(traces), Some(metrics), Some(resource), Some(sampler)) => Ok(Self {
                traces,
                metrics,
                resource,
                sampler,
            }),
            _ => Err(mistakes),
        }
    }
}

/// Sets what is wrong aside.
pub(super) fn collect<T>(outcome: Result<T, Vec<String>>, mistakes: &mut Vec<String>) -> Option<T> {
    outcome.map_err(|wrong| mistakes.extend(wrong)).ok()
}
