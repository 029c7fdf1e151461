//! What is sent by OTLP, from the standard variables.
//!
//! Invariant: whatever they say, the program starts and receives. What is not valid is ignored, and
//! noted for the log.

use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::export::{
    Destination, IgnoredSetting, Lookup, OtlpSettings, Sampler, Signal, resource_from_variables,
};

/// What the standard variables of OpenTelemetry say.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Where spans go.
    pub traces: Destination,
    /// Where the sidecar's own metrics go, besides being served.
    pub metrics: Option<OtlpSettings>,
    pub resource: Resource,
    pub sampler: Sampler,
    pub ignored: Vec<IgnoredSetting>,
}

impl Telemetry {
    pub fn from_variables(lookup: Lookup<'_>) -> Self {
        let mut ignored = Vec::new();
        let mut destination = |signal| Destination::from_variables(lookup, signal, &mut ignored);
        let (traces, metrics) = (destination(Signal::Traces), destination(Signal::Metrics));
        Self {
            traces,
            metrics: metrics.collector().cloned(),
            resource: resource_from_variables(lookup, &mut ignored),
            sampler: Sampler::from_variables(lookup, &mut ignored),
            ignored,
        }
    }

    /// Where spans go, unless the sampler leaves none.
    pub fn tracing(&self) -> &Destination {
        match self.sampler {
            Sampler::AlwaysOff => &Destination::Off,
            Sampler::Ratio(_) => &self.traces,
        }
    }
}
