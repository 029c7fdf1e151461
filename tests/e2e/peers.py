"""How the peers of the end-to-end run are asked: MinIO, Jaeger, and who serves metrics."""

import collections
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import boto3
import zstandard

BUCKET, PREFIX = "payloads", "e2e/"
SERVICE = "spanplane"


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


def counts(url, name):
    """Values of a metric by its labels."""
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)", get(url), re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def metric(name):
    return sum(counts(os.environ["METRICS"], name).values())


def s3():
    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])


def objects(folder):
    """Keys under a folder of the sidecar's, with what they hold, as it is stored."""
    client = s3()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX + folder):
        for entry in page.get("Contents", []):
            found = client.get_object(Bucket=BUCKET, Key=entry["Key"])
            yield entry["Key"].removeprefix(PREFIX), found, found["Body"].read()


def unpacked(body):
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


def traces(**tags):
    """Spans of Jaeger by trace, as its own page asks for them."""
    query = urllib.parse.urlencode({"service": SERVICE, "limit": 5000, "lookback": "1h", "tags": json.dumps(tags)})
    answer = json.loads(get(f"{os.environ['JAEGER']}/api/traces?{query}"))
    return {trace["traceID"]: trace["spans"] for trace in answer["data"]}


def tags_of(span_or_log, field="tags"):
    return {tag["key"]: tag["value"] for tag in span_or_log[field]}


def collected(signal):
    """Batches that the Collector wrote to its file."""
    with open(f"{os.environ['COLLECTED']}/{signal}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def notes():
    """What earlier commands of this run left for later ones."""
    try:
        with open(os.environ["NOTES"], encoding="utf-8") as file:
            return collections.Counter(json.load(file))
    except FileNotFoundError:
        return collections.Counter()


def note(**more):
    told = notes()
    told.update(more)
    with open(os.environ["NOTES"], "w", encoding="utf-8") as file:
        json.dump(told, file)
