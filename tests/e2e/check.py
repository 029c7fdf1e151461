"""Checks of the end-to-end run, one a command, all from outside: S3, metrics, gRPC, Jaeger, DuckDB."""

import base64
import collections
import json
import os
import re
import subprocess
import sys

from index import check_index
from peers import BUCKET, collected, counts, eventually, get, metric, note, objects, s3, traces, unpacked
from spans import check_limits, check_traces, payload_events

# What the rules of redaction cover; see the captures' README for where each one stands.
COVERED = {"stringdata", "data", "object-stringdata", "object-data", "required-lastapplied", "credentials", "mr-connection", "xr-connection"}


def wait_for_peers():
    eventually("MinIO answers", lambda: get(os.environ["AWS_ENDPOINT_URL"] + "/minio/health/live") == "")
    eventually("Jaeger answers", lambda: traces() == {})


def by_hand(grpcurl):
    """grpcurl finds the service and its messages by reflection, and calls it by name."""
    eventually("the socket is there", lambda: os.path.exists(os.environ["SOCKET"]))
    call = [grpcurl, "-plaintext", "-unix"]
    listed = subprocess.check_output([*call, os.environ["SOCKET"], "list"], text=True)
    assert "crossplane.pipeline.v1alpha1.PipelineInspectorService" in listed, listed
    meta = {"trace_id": "by-hand", "span_id": "1", "step_name": "typed", "composition_meta": {"composite_resource_kind": "ByHand", "composite_resource_name": "one"}}
    message = {"request": base64.b64encode(b'{"typed":"by hand"}').decode(), "meta": meta}
    service = "crossplane.pipeline.v1alpha1.PipelineInspectorService/EmitRequest"
    answer = subprocess.check_output([*call, "-d", json.dumps(message), os.environ["SOCKET"], service], text=True)
    assert json.loads(answer) == {}, answer


def nothing_stored():
    assert metric("spanplane_messages_acknowledged_total") > 50
    assert metric("spanplane_objects_stored_total") == 0
    eventually("the missing bucket is noticed", lambda: metric("spanplane_store_failures_total") > 0)
    assert metric("spanplane_objects_dropped_total") == 0


def make_bucket():
    s3().create_bucket(Bucket=BUCKET)
    eventually("what waited is stored", lambda: metric("spanplane_objects_stored_total") > 5)


def stored_without_collector(kind):
    """Payloads arrive, spans wait, and the metrics say so."""
    eventually(f"a {kind} is stored", lambda: any(True for _ in objects(f"v1/reconciles/{kind}.")))
    eventually("the missing Collector is noticed", lambda: metric("spanplane_export_failures_total") > 0)
    assert not traces(**{"k8s.object.kind": kind})


def apply(drive, path):
    """Kinds that are established may be unknown to kubectl for a moment."""
    eventually(f"{path} is applied", lambda: subprocess.run([drive, "kubectl", "apply", "-f", path], check=False).returncode == 0, 20)


def payload_states(kind):
    found = traces(**{"k8s.object.kind": kind}).values()
    return {event["crossplane.payload.state"] for spans in found for span in spans for event in payload_events(span)}


def traced(kind, state):
    """Spans arrive, and say of their payloads what was true when they went."""
    eventually(f"Jaeger has a {kind} that is {state}", lambda: state in payload_states(kind))
    possible = {"queued"} if state == "queued" else {"stored", "unchanged"}
    assert payload_states(kind) <= possible, payload_states(kind)


def note_acknowledged():
    """A process takes its counts with it."""
    note(acknowledged=metric("spanplane_messages_acknowledged_total"))
    assert metric("spanplane_messages_refused_total") == 0
    assert metric("spanplane_spans_lost_total") == 0


def note_core():
    """Core counts emits that failed, in a metric that does not exist before the first; and the calls of each function."""
    assert "function_run_function_pipeline_inspector_errors_total{" not in get(os.environ["CORE_METRICS"])
    for labels, value in counts(os.environ["CORE_METRICS"], "function_run_function_request_total").items():
        note(**{"calls of " + re.search('function_name="([^"]+)"', labels)[1]: value})


def stored():
    kinds, everything = collections.Counter(), ""
    for key, found, body in objects("v1/reconciles/"):
        assert found["ContentType"] == "application/json" and found["ContentEncoding"] == "zstd", found
        text = unpacked(body).decode()
        document = json.loads(text)
        kind = document["subject"]["kind"]
        assert found["Metadata"]["trace-id"] == document["trace_id"], key
        assert document["v"] == 1 and document["trace_id"] in key, key
        kinds[kind] += 1
        everything += text
        for index, step in enumerate(document["steps"]):
            assert step["index"] == index and step["request"], key
            if kind in ("BucketSet", "Login"):
                assert step["request"]["meta"]["tag"] == step["response"]["meta"]["tag"], key
    # Played by the example: 8 Operations, of which two failed twice in the same way.
    assert kinds["Operation"] == 6 and kinds["ByHand"] == 1 and kinds["BucketSet"] >= 5 and kinds["Login"] >= 3, kinds
    # What is shown of a payload in a span or a line went the same way as the payload.
    everything += json.dumps(collected("traces"))
    everything += "".join(unpacked(body).decode() for _, _, body in objects("v1/index/"))
    for name in re.findall(r"canary-s3cr3t-1-([a-z-]+)", everything):
        assert name not in COVERED, f"{name} got out"
    for name in COVERED:
        assert base64.b64encode(f"canary-s3cr3t-1-{name}".encode()).decode() not in everything, name
    print(f"e2e: {sum(kinds.values())} objects: {dict(kinds)}")


def metrics():
    """The sidecar's own, as they reached the Collector."""
    scopes = [scope for batch in collected("metrics") for resource in batch["resourceMetrics"] for scope in resource["scopeMetrics"]]
    found = {each["name"]: each for scope in scopes for each in scope["metrics"]}
    points = found["spanplane_function_duration"]["histogram"]["dataPoints"]
    functions = {attribute["value"]["stringValue"] for point in points for attribute in point["attributes"] if attribute["key"] == "function"}
    assert {"function-pythonic", "function-lab", "function-auto-ready"} <= functions, functions
    assert all(int(point["count"]) > 0 for point in points), points
    print(f"e2e: {len(found)} metrics in the Collector")


def everything_agrees():
    stored()
    roots = check_traces()
    check_limits()
    check_index(roots)
    metrics()


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
