//! Variables that others have named: OpenTelemetry's, and those of the clouds.

use std::{cell::RefCell, collections::BTreeSet, str::FromStr};

use object_store::{aws::AmazonS3ConfigKey, azure::AzureConfigKey, gcp::GoogleConfigKey};
use spanplane::config::Telemetry;

use crate::page::all;

#[test]
fn opentelemetrys_variables_are_those_that_are_looked_up() {
    let asked = RefCell::new(BTreeSet::new());
    // Whatever is asked for only if something else is set.
    let lookup = |name: &str| {
        asked.borrow_mut().insert(of_any_signal(name));
        let value = match name {
            "OTEL_METRICS_EXPORTER" => "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT" => "http://localhost:4317",
            "OTEL_TRACES_SAMPLER" => "traceidratio",
            _ => return None,
        };
        Some(value.to_owned())
    };
    Telemetry::from_variables(&lookup);

    let told = all("OTEL_[A-Z_]+");
    let told: BTreeSet<_> = told.iter().map(|name| of_any_signal(name)).collect();
    assert_eq!(told, asked.into_inner());
}

/// `OTEL_EXPORTER_OTLP_TRACES_HEADERS` → `OTEL_EXPORTER_OTLP_HEADERS`
fn of_any_signal(name: &str) -> String {
    let prefix = "OTEL_EXPORTER_OTLP_";
    let own = ["TRACES_", "METRICS_"].iter().find_map(|signal| {
        let name = name.strip_prefix(prefix)?.strip_prefix(signal)?;
        Some(format!("{prefix}{name}"))
    });
    own.unwrap_or_else(|| name.to_owned())
}

#[test]
fn every_variable_of_a_cloud_is_known_to_its_client() {
    let mut clouds = 0;
    for name in all("(AWS|GOOGLE|AZURE)_[A-Z0-9_]+") {
        let key = name.to_lowercase();
        let known = match name.split_once('_').unwrap().0 {
            "AWS" => AmazonS3ConfigKey::from_str(&key).is_ok(),
            "GOOGLE" => GoogleConfigKey::from_str(&key).is_ok(),
            _ => AzureConfigKey::from_str(&key).is_ok(),
        };
        assert!(known, "{name}");
        clouds += 1;
    }
    assert!(clouds > 0);
}
