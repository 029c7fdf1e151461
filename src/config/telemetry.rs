//! What is sent by OTLP, from the standard variables.
//!
//! Invariant: whatever they say, the program starts and receives. What is not valid is ignored, and
//! noted for the log.

use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::export::{
    IgnoredSetting, Lookup, OtlpSettings, Sampler, Signal, resource_from_variables,
};

/// What the standard variables of OpenTelemetry say.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Where spans go, if anywhere.
    pub traces: Option<OtlpSettings>,
    /// Where the sidecar's own metrics go, besides being served.
    pub metrics: Option<OtlpSettings>,
    pub resource: Resource,
    pub sampler: Sampler,
    pub ignored: Vec<IgnoredSetting>,
}

impl Telemetry {
    pub fn from_variables(lookup: Lookup<'_>) -> Self {
        let mut ignored = Vec::new();
        Self {
            traces: OtlpSettings::from_variables(lookup, Signal::Traces, &mut ignored),
            metrics: OtlpSettings::from_variables(lookup, Signal::Metrics, &mut ignored),
            resource: resource_from_variables(lookup, &mut ignored),
            sampler: Sampler::from_variables(lookup, &mut ignored),
            ignored,
        }
    }

    /// Where spans go, unless the sampler leaves none.
    pub fn tracing(&self) -> Option<&OtlpSettings> {
        match self.sampler {
            Sampler::AlwaysOff => None,
            Sampler::Ratio(_) => self.traces.as_ref(),
        }
    }
}
