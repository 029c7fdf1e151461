"""Checks of the end-to-end run, one a command, all from outside: S3, metrics, gRPC."""

import base64
import collections
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import boto3
import zstandard

BUCKET, PREFIX = "payloads", "e2e/v1/reconciles/"
# What the rules of redaction cover; see the captures' README for where each one stands.
COVERED = {"stringdata", "data", "object-stringdata", "object-data", "required-lastapplied", "credentials", "mr-connection", "xr-connection"}


def s3():
    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])


def eventually(what, probe, seconds=60):
    """Asks until the answer is true; a real system has no other way to tell."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if probe():
                return
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.1)
    sys.exit(f"e2e: {what}: not within {seconds} s")


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def metric(name):
    values = [line.rsplit(" ", 1)[1] for line in get(os.environ["METRICS"]).splitlines() if re.match(rf"{name}(\{{|\s)", line)]
    return sum(float(value) for value in values)


def documents():
    client = s3()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX):
        for entry in page.get("Contents", []):
            found = client.get_object(Bucket=BUCKET, Key=entry["Key"])
            text = zstandard.ZstdDecompressor().decompressobj().decompress(found["Body"].read())
            yield entry["Key"], found, text.decode()


def wait_for_minio():
    eventually("MinIO answers", lambda: get(os.environ["AWS_ENDPOINT_URL"] + "/minio/health/live") == "")


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


def no_errors_in_core():
    """Core counts emits that failed; the metric does not exist before the first."""
    assert "function_run_function_pipeline_inspector_errors_total{" not in get(os.environ["CORE_METRICS"])
    assert metric("spanplane_messages_refused_total") == 0


def stored():
    kinds, everything = collections.Counter(), ""
    for key, found, text in documents():
        assert found["ContentType"] == "application/json" and found["ContentEncoding"] == "zstd", found
        document = json.loads(text)
        assert found["Metadata"]["trace-id"] == document["trace_id"], key
        assert document["v"] == 1 and document["trace_id"] in key, key
        kinds[document["subject"]["kind"]] += 1
        everything += text
        if document["subject"]["kind"] in ("ByHand", "Operation"):
            continue
        for index, step in enumerate(document["steps"]):
            assert step["index"] == index and step["request"] and step["response"], key
            assert step["request"]["meta"]["tag"] == step["response"]["meta"]["tag"], key
    # Played by the example: 8 Operations, of which two failed twice in the same way.
    assert kinds["Operation"] == 6 and kinds["ByHand"] == 1 and kinds["BucketSet"] >= 5 and kinds["Login"] >= 3, kinds
    for name in re.findall(r"canary-s3cr3t-1-([a-z-]+)", everything):
        assert name not in COVERED, f"{name} reached the store"
    for name in COVERED:
        assert base64.b64encode(f"canary-s3cr3t-1-{name}".encode()).decode() not in everything, name
    print(f"e2e: {sum(kinds.values())} objects: {dict(kinds)}")


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
