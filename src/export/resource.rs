//! Who the spans and metrics are from.
//!
//! Invariant: attributes are sorted and unique, and `service.name` is always there.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    resource::v1::Resource,
};

use super::variables::{IgnoredSetting, Lookup, Reader, parse_pairs};

const DEFAULT_NAME: &str = "spanplane";

/// The resource, from `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
pub fn resource_from_variables(lookup: Lookup<'_>, ignored: &mut Vec<IgnoredSetting>) -> Resource {
    let mut reader = Reader::new(lookup, ignored);
    let mut attributes = BTreeMap::from([
        ("service.name".to_owned(), DEFAULT_NAME.to_owned()),
        (
            "service.version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
    ]);
    // As specified, one mistake has all of them ignored.
    let given = reader.parsed(&["OTEL_RESOURCE_ATTRIBUTES"], |_, text| {
        let attributes = parse_pairs(text).map(|pair| {
            let (key, value) = pair?;
            match String::from_utf8(value) {
                Ok(value) => Ok((key, value)),
                Err(_) => Err(format!("the value of {key:?} is not UTF-8")),
            }
        });
        attributes.collect::<Result<Vec<_>, _>>()
    });
    attributes.extend(given.into_iter().flatten());
    if let Some(name) = reader.text("OTEL_SERVICE_NAME") {
        attributes.insert("service.name".to_owned(), name);
    }
    Resource {
        attributes: attributes.into_iter().map(attribute).collect(),
        ..Resource::default()
    }
}

/// The same, as the SDK wants it for metrics.
pub fn sdk_resource(resource: &Resource) -> opentelemetry_sdk::Resource {
    let attributes = resource.attributes.iter().filter_map(|pair| {
        let Some(Value::StringValue(value)) = &pair.value.as_ref()?.value else {
            return None;
        };
        let (key, value) = (pair.key.clone(), value.clone());
        Some(opentelemetry::KeyValue::new(key, value))
    });
    opentelemetry_sdk::Resource::builder_empty()
        .with_attributes(attributes)
        .build()
}

fn attribute((key, value): (String, String)) -> KeyValue {
    KeyValue {
        key,
        value: Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }),
        ..KeyValue::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(variables: &[(&str, &str)]) -> (Vec<(String, String)>, Vec<IgnoredSetting>) {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut ignored = Vec::new();
        let resource = resource_from_variables(&lookup, &mut ignored);
        let text = |value| match value {
            Some(Value::StringValue(text)) => text,
            other => panic!("{other:?}"),
        };
        let attributes = resource.attributes.into_iter();
        let attributes = attributes.map(|pair| (pair.key, text(pair.value.unwrap().value)));
        (attributes.collect(), ignored)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_service_has_a_name_and_a_version_without_being_told() {
        let version = env!("CARGO_PKG_VERSION");
        let expected = pairs(&[("service.name", "spanplane"), ("service.version", version)]);
        assert_eq!(shown(&[("OTEL_SERVICE_NAME", "")]), (expected, vec![]));
    }

    #[test]
    fn attributes_are_decoded_sorted_and_give_way_to_the_name() {
        let variables = [
            ("OTEL_SERVICE_NAME", "mine"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "z=1,service.name=other,service.version=2,a=b%2Cc",
            ),
        ];
        let expected = pairs(&[
            ("a", "b,c"),
            ("service.name", "mine"),
            ("service.version", "2"),
            ("z", "1"),
        ]);
        assert_eq!(shown(&variables), (expected, vec![]));
    }

    #[test]
    fn attributes_that_are_not_valid_are_noted_and_the_rest_stays() {
        for text in ["a=b,novalue", "a=%FF"] {
            let variables = [
                ("OTEL_SERVICE_NAME", "mine"),
                ("OTEL_RESOURCE_ATTRIBUTES", text),
            ];
            let (attributes, ignored) = shown(&variables);
            assert_eq!(attributes.len(), 2, "{attributes:?}");
            assert_eq!(ignored.len(), 1, "{ignored:?}");
            assert_eq!(ignored[0].variable, "OTEL_RESOURCE_ATTRIBUTES");
        }
    }
}
