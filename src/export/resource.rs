//! Who the spans and metrics are from.
//!
//! Invariant: attributes are sorted and unique, and `service.name` is always there.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    resource::v1::Resource,
};

use super::variables::{Lookup, Reader, parse_pairs};

const DEFAULT_NAME: &str = "spanplane";

/// The resource, from `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`; or every mistake.
pub fn resource_from_variables(lookup: Lookup<'_>) -> Result<Resource, Vec<String>> {
    let mut reader = Reader::new(lookup);
    let mut attributes = BTreeMap::from([
        ("service.name".to_owned(), DEFAULT_NAME.to_owned()),
        (
            "service.version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
    ]);
    let given = reader.parsed("OTEL_RESOURCE_ATTRIBUTES", |text| {
        let pairs = parse_pairs(text)?.into_iter();
        pairs
            .map(|(key, value)| match String::from_utf8(value) {
                Ok(value) => Ok((key, value)),
                Err(_) => Err(format!("the value of {key:?} is no UTF-8 text")),
            })
            .collect::<Result<Vec<_>, _>>()
    });
    attributes.extend(given.into_iter().flatten());
    if let Some(name) = reader.text("OTEL_SERVICE_NAME") {
        attributes.insert("service.name".to_owned(), name);
    }
    reader.finish(Resource {
        attributes: attributes.into_iter().map(attribute).collect(),
        ..Resource::default()
    })
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

    fn shown(variables: &[(&str, &str)]) -> Result<Vec<(String, String)>, Vec<String>> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let resource = resource_from_variables(&lookup)?;
        let text = |value| match value {
            Some(Value::StringValue(text)) => text,
            other => panic!("{other:?}"),
        };
        let attributes = resource.attributes.into_iter();
        Ok(attributes
            .map(|pair| (pair.key, text(pair.value.unwrap().value)))
            .collect())
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
        assert_eq!(
            shown(&[("OTEL_SERVICE_NAME", "")]).unwrap(),
            pairs(&[("service.name", "spanplane"), ("service.version", version)])
        );
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
        assert_eq!(
            shown(&variables).unwrap(),
            pairs(&[
                ("a", "b,c"),
                ("service.name", "mine"),
                ("service.version", "2"),
                ("z", "1"),
            ])
        );
    }

    #[test]
    fn mistakes_name_the_variable() {
        for text in ["novalue", "a=%FF"] {
            let mistakes = shown(&[("OTEL_RESOURCE_ATTRIBUTES", text)]).unwrap_err();
            assert_eq!(mistakes.len(), 1);
            assert!(mistakes[0].starts_with("OTEL_RESOURCE_ATTRIBUTES: "));
        }
    }
}
