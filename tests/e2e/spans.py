"""What Jaeger shows of the traces, and what the Collector took: structure, links, payloads, limits."""

import collections
import functools
import hashlib
import json
import re

from peers import BUCKET, PREFIX, collected, s3, tags_of, traces, unpacked

# Where Tempo cuts, and what the sidecar promises.
MAX_VALUE_BYTES, MAX_ATTRIBUTES, MAX_EVENT_ATTRIBUTES = 2048, 32, 8
# How each composition's pipeline is to end, as the scenarios have it: error.type, and what the description mentions. By hand, only a request was sent.
FAILURES = {"fatal": ("fatal", "policy net-17"), "grpcerror": ("invalid_argument", "InvalidArgument")}
BLANKS = re.compile(r"[ \t\r\n]*")


def payload_events(span):
    events = (tags_of(log, "fields") for log in span["logs"])
    return [event for event in events if "crossplane.payload.key" in event]


def raw_value(text, pointer):
    """The value at a JSON pointer exactly as it stands in the text."""
    decoder, at = json.JSONDecoder(), 0
    blank = lambda at: BLANKS.match(text, at).end()
    for name in pointer.split("/")[1:]:
        is_list, place, at = text[at] == "[", 0, blank(at + 1)
        while True:
            key = place
            if not is_list:
                key, at = json.decoder.scanstring(text, at + 1)
                at = blank(blank(at) + 1)
            if str(key) == name:
                break
            at = blank(decoder.raw_decode(text, at)[1])
            assert text[at] == ",", f"{pointer} is not there"
            place, at = place + 1, blank(at + 1)
    return text[at:decoder.raw_decode(text, at)[1]]


@functools.lru_cache(maxsize=None)
def stored_document(key):
    return unpacked(s3().get_object(Bucket=BUCKET, Key=PREFIX + key)["Body"].read()).decode()


def check_payload(event):
    key, pointer = event["crossplane.payload.key"], event["crossplane.payload.pointer"]
    value = raw_value(stored_document(key), pointer).encode()
    assert len(value) == event["crossplane.payload.size"], event
    assert hashlib.sha256(value).hexdigest() == event["crossplane.payload.sha256"], event
    assert event["crossplane.payload.uri"] == f"s3://{BUCKET}/{PREFIX}{key}", event
    assert event["crossplane.payload.url"].endswith(f"/open?key={key}&pointer={pointer}"), event


def references(span, kind):
    return [(each["traceID"], each["spanID"]) for each in span["references"] if each["refType"] == kind]


def check_status(span, failure):
    tags = tags_of(span)
    if failure is None:
        assert "error" not in tags and "error.type" not in tags and "otel.status_code" not in tags, tags
    else:
        error_type, words = failure
        assert tags["error"] is True and tags["otel.status_code"] == "ERROR", tags
        assert tags["error.type"] == error_type and words in tags["otel.status_description"], tags


def check_trace(trace_id, spans):
    """One root, its steps in order below it, within it, with their payloads. Returns the root."""
    assert len({span["spanID"] for span in spans}) == len(spans), f"{trace_id} has a span twice"
    [root] = [span for span in spans if not references(span, "CHILD_OF")]
    tags = tags_of(root)
    composition = tags.get("crossplane.composition.name", "")
    is_operation = tags["k8s.object.kind"] == "Operation"
    assert root["operationName"] == ("operation" if is_operation else f"reconcile {composition}".strip()), root
    steps = sorted((span for span in spans if span is not root), key=lambda span: span["startTime"])
    assert [tags_of(step)["crossplane.step.index"] for step in steps] == list(range(len(steps))), trace_id
    assert tags["crossplane.reconcile.steps"] == len(steps) > 0, trace_id
    for step in steps:
        assert references(step, "CHILD_OF") == [(trace_id, root["spanID"])], step
        assert step["operationName"] == f"RunFunction {tags_of(step)['crossplane.step.name']}", step
        end = step["startTime"] + step["duration"]
        # Jaeger cuts nanoseconds, of the start and of the duration.
        assert root["startTime"] <= step["startTime"] and end <= root["startTime"] + root["duration"] + 1, step
        assert all(step["startTime"] <= log["timestamp"] <= end + 1 for log in step["logs"]), step
        for event in payload_events(step):
            check_payload(event)
    if not is_operation:
        failure = FAILURES.get(composition)
        check_status(root, failure)
        check_status(steps[-1], failure)
        for step in steps[:-1]:
            check_status(step, None)
            assert [event["event"] for event in payload_events(step)] == ["function.request", "function.response"], step
    return root


def check_links(roots):
    """Each reconcile is linked to the one before of the same subject."""
    subjects = collections.defaultdict(list)
    for trace_id, root in roots.items():
        tags = tags_of(root)
        subjects[tags.get("k8s.object.uid", tags["k8s.object.name"])].append((root["startTime"], trace_id, root))
    for history in subjects.values():
        history.sort(key=lambda entry: entry[:2])
        before = []
        for _, trace_id, root in history:
            assert references(root, "FOLLOWS_FROM") == before, (trace_id, before)
            before = [(trace_id, root["spanID"])]
    return len(subjects)


def check_dropped(found):
    """The scenario's second step takes away what its first asked for, and its trace says so."""
    dropping = [span for spans in found.values() for span in spans if any(tags_of(log, "fields")["event"] == "resource.dropped" for log in span["logs"])]
    assert dropping and {span["operationName"] for span in dropping} == {"RunFunction tidy"}, dropping
    events = [tags_of(log, "fields") for span in dropping for log in span["logs"]]
    drops = [event for event in events if event["event"] == "resource.dropped"]
    assert {event["crossplane.resource.name"] for event in drops} == {"bucket-b"}, drops
    assert {event["crossplane.resource.observed"] for event in drops} == {True, False}, drops


def check_traces():
    found = traces()
    roots = {trace_id: check_trace(trace_id, spans) for trace_id, spans in found.items()}
    subjects = check_links(roots)
    check_dropped(found)
    slow = [span["duration"] for spans in found.values() for span in spans if span["operationName"] == "RunFunction sleep"]
    assert slow and all(duration >= 3_000_000 for duration in slow), slow
    print(f"e2e: {len(found)} traces of {subjects} subjects in Jaeger, {stored_document.cache_info().currsize} objects opened from them")
    return roots


def strings(value):
    """The texts in an attribute's value."""
    nested = value.get("arrayValue", {}).get("values", [])
    return [value.get("stringValue", ""), *(text for each in nested for text in strings(each))]


def check_limits():
    """As they were sent, since Jaeger adds attributes of its own."""
    scopes = [scope for batch in collected("traces") for resource in batch["resourceSpans"] for scope in resource["scopeSpans"]]
    for span in (span for scope in scopes for span in scope["spans"]):
        events = [event.get("attributes", []) for event in span.get("events", [])]
        assert len(span["attributes"]) <= MAX_ATTRIBUTES, span
        assert all(len(attributes) <= MAX_EVENT_ATTRIBUTES for attributes in events), span
        for attribute in (attribute for attributes in (span["attributes"], *events) for attribute in attributes):
            assert sum(len(text.encode()) for text in strings(attribute["value"])) < MAX_VALUE_BYTES, attribute
