//! Which traces are sent.
//!
//! Invariant: the answer depends on the trace id alone, so that all spans of a trace, and a trace
//! that is sent again, get the same one.

use super::variables::{IgnoredSetting, Lookup, Reader};
use crate::ids::OtelTraceId;

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Which traces are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampler {
    /// None at all.
    AlwaysOff,
    /// This share of all traces, between 0 and 1, besides those that are always worth sending.
    Ratio(f64),
}

impl Sampler {
    /// From `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`.
    pub fn from_variables(lookup: Lookup<'_>, ignored: &mut Vec<IgnoredSetting>) -> Self {
        let mut reader = Reader::new(lookup, ignored);
        let name = reader.keyword(SAMPLER).unwrap_or_default();
        // Core propagates no parent, so what is based on one asks the sampler for roots.
        match name.strip_prefix("parentbased_").unwrap_or(&name) {
            "" | "always_on" => Self::Ratio(1.0),
            "always_off" => Self::AlwaysOff,
            "traceidratio" => {
                let ratio = reader.parsed(&[ARGUMENT], |_, text| parse_ratio(text));
                Self::Ratio(ratio.unwrap_or(1.0))
            }
            _ => {
                let problem = format!(
                    "{name:?} is not supported, every trace is sent; use always_on, always_off, \
                     traceidratio, or one of them after parentbased_"
                );
                reader.ignore(SAMPLER, problem);
                Self::Ratio(1.0)
            }
        }
    }

    /// Whether a trace about which there is nothing special is sent.
    pub fn keeps(self, trace_id: OtelTraceId) -> bool {
        match self {
            Self::AlwaysOff => false,
            Self::Ratio(ratio) => randomness(trace_id) >= 1.0 - ratio,
        }
    }
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok();
    ratio
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .ok_or_else(|| format!("{text:?} is not a ratio; use a number from 0 to 1, such as 0.1"))
}

/// The random part of a trace id, between 0 and 1, never 1.
///
/// NOTE: as OpenTelemetry has it, that is the low 56 bits. The 8 above them are not random in a
/// UUID, whose variant stands there: with them, a ratio of a half would keep every trace.
fn randomness(OtelTraceId(id): OtelTraceId) -> f64 {
    let bits = u128::from_be_bytes(id);
    let part = |from: u32, mask: u32| u32::try_from(bits >> from & u128::from(mask)).unwrap_or(0);
    // 52 bits, which a double holds to the last.
    let (high, low) = (part(24, u32::MAX), part(4, 0xf_ffff));
    (f64::from(high) + f64::from(low) / 1_048_576.0) / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, argument: &str) -> (Sampler, Vec<IgnoredSetting>) {
        let mut ignored = Vec::new();
        let lookup = |variable: &str| match variable {
            SAMPLER => Some(name.to_owned()),
            ARGUMENT => Some(argument.to_owned()),
            _ => None,
        };
        (Sampler::from_variables(&lookup, &mut ignored), ignored)
    }

    fn sampler(name: &str, argument: &str) -> Sampler {
        let (sampler, ignored) = read(name, argument);
        assert_eq!(ignored, [], "{name} {argument}");
        sampler
    }

    /// Ids as core makes them: random but for version and variant.
    fn uuids() -> impl Iterator<Item = OtelTraceId> {
        let mut random = fastrand::Rng::with_seed(7);
        std::iter::repeat_with(move || {
            let bits = random.u128(..);
            let bits = bits & !(0xf << 76) | (0x4 << 76);
            let bits = bits & !(0x3 << 62) | (0x2 << 62);
            OtelTraceId(bits.to_be_bytes())
        })
        .take(10_000)
    }

    #[test]
    fn all_or_nothing() {
        let extremes = [OtelTraceId([0; 16]), OtelTraceId([0xff; 16])];
        for (name, argument, keeps) in [
            ("", "", true),
            ("always_on", "0", true),
            ("parentbased_always_on", "", true),
            ("traceidratio", "", true),
            ("TraceIdRatio", "1", true),
            ("always_off", "", false),
            ("parentbased_always_off", "1", false),
            ("parentbased_traceidratio", "0", false),
        ] {
            let sampler = sampler(name, argument);
            for id in uuids().take(100).chain(extremes) {
                assert_eq!(sampler.keeps(id), keeps, "{name} {argument} {id}");
            }
        }
    }

    #[test]
    fn a_ratio_of_nothing_is_not_the_same_as_off() {
        assert_eq!(sampler("parentbased_always_off", ""), Sampler::AlwaysOff);
        assert_ne!(sampler("traceidratio", "0"), Sampler::AlwaysOff);
    }

    #[test]
    fn a_ratio_keeps_that_much_of_what_core_makes() {
        for (argument, expected) in [("0.1", 1_000), ("0.5", 5_000), ("0.9", 9_000)] {
            let sampler = sampler("parentbased_traceidratio", argument);
            let kept = uuids().filter(|id| sampler.keeps(*id)).count();
            assert!(kept.abs_diff(expected) < 200, "{argument}: {kept}");
        }
    }

    #[test]
    fn a_larger_ratio_keeps_whatever_a_smaller_one_does() {
        let small = sampler("traceidratio", "0.2");
        let large = sampler("traceidratio", "0.4");
        assert!(uuids().all(|id| !small.keeps(id) || large.keeps(id)));
    }

    #[test]
    fn what_is_not_valid_is_noted_and_every_trace_is_kept() {
        for (name, argument, variable) in [
            ("sometimes", "", SAMPLER),
            ("jaeger_remote", "", SAMPLER),
            ("traceidratio", "1.1", ARGUMENT),
            ("traceidratio", "-0.1", ARGUMENT),
            ("traceidratio", "NaN", ARGUMENT),
            ("traceidratio", "10%", ARGUMENT),
        ] {
            let (sampler, ignored) = read(name, argument);
            assert_eq!(sampler, Sampler::Ratio(1.0), "{name} {argument}");
            assert_eq!(ignored.len(), 1, "{ignored:?}");
            assert_eq!(ignored[0].variable, variable);
        }
    }
}
