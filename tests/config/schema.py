"""Documents against the schema of a CRD, as strictly as an API server does with strict field validation."""

import sys

import jsonschema
import yaml


def closed(schema):
    """Fields that a schema does not name are mistakes, unless it says otherwise."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and "x-kubernetes-preserve-unknown-fields" not in schema:
        strict["additionalProperties"] = False
    return strict


def without_nulls(document):
    """An API server takes a field that is null for one that is not there."""
    if isinstance(document, list):
        return [without_nulls(each) for each in document]
    if isinstance(document, dict):
        return {key: without_nulls(value) for key, value in document.items() if value is not None}
    return document


def schema_of(crds, name):
    """Of the version that is stored."""
    with open(f"{crds}/{name}.yaml", encoding="utf-8") as file:
        versions = yaml.safe_load(file)["spec"]["versions"]
    return next(version["schema"]["openAPIV3Schema"] for version in versions if version["storage"])


def validate(document, schema, what):
    validator = jsonschema.Draft202012Validator(closed(schema))
    mistakes = [f"{what}: {error.json_path}: {error.message[:300]}" for error in validator.iter_errors(without_nulls(document))]
    if mistakes:
        sys.exit("\n".join(f"config: {mistake}" for mistake in mistakes))
