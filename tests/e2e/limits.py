"""What the Collector took, as it was sent: within the limits of any backend, and unchanged by processors in between."""

# Where Tempo cuts, and what the sidecar promises.
MAX_VALUE_BYTES, MAX_ATTRIBUTES, MAX_EVENT_ATTRIBUTES = 2048, 32, 8
# What `config/processors.yaml` inserts.
INSERTED = {"key": "deployment.environment.name", "value": {"stringValue": "suite"}}


def strings(value):
    """The texts in an attribute's value."""
    nested = value.get("arrayValue", {}).get("values", [])
    return [value.get("stringValue", ""), *(text for each in nested for text in strings(each))]


def check_limits(stack):
    for span in stack.collector.spans():
        events = [event.get("attributes", []) for event in span.get("events", [])]
        assert len(span["attributes"]) <= MAX_ATTRIBUTES, span
        assert all(len(attributes) <= MAX_EVENT_ATTRIBUTES for attributes in events), span
        for attribute in (attribute for attributes in (span["attributes"], *events) for attribute in attributes):
            assert sum(len(text.encode()) for text in strings(attribute["value"])) < MAX_VALUE_BYTES, attribute


def check_processed(stack):
    """Behind `batch` and `attributes` each span is what it was, and has the one attribute that was asked for."""
    by_id = lambda spans: {(span["traceId"], span["spanId"]): span for span in spans}
    before, after = by_id(stack.collector.spans()), by_id(stack.collector.spans("processed"))
    assert before.keys() == after.keys() and before, (len(before), len(after))
    for key, span in after.items():
        assert INSERTED in span["attributes"], span
        span["attributes"].remove(INSERTED)
        assert span == before[key], key
    for trace_id, spans in stack.traces().items():
        shown = [tag["value"] for span in spans for tag in span["tags"] if tag["key"] == INSERTED["key"]]
        assert shown == ["suite"] * len(spans), trace_id
    stack.say(f"{len(after)} spans passed through batch and attributes unchanged")


def check_metrics(stack, functions):
    """The sidecar's own, as they reached the Collector."""
    scopes = [scope for batch in stack.collector.collected("metrics") for resource in batch["resourceMetrics"] for scope in resource["scopeMetrics"]]
    found = {each["name"]: each for scope in scopes for each in scope["metrics"]}
    points = found["spanplane_function_duration"]["histogram"]["dataPoints"]
    named = {attribute["value"]["stringValue"] for point in points for attribute in point["attributes"] if attribute["key"] == "function"}
    assert functions <= named, named
    assert all(int(point["count"]) > 0 for point in points), points
    stack.say(f"{len(found)} metrics of the sidecar's own in the Collector")
