"""One sidecar and all that it talks to, and how each of them is asked."""

import json
import os
import time
import urllib.parse

import zstandard

from captures import Captures
from core import Core, counts
from machine import Process, eventually, get, readiness
from servers import BUCKET, HERE, KEY, PREFIX, SECRET, Collector, Jaeger, Tempo

SERVICE = "spanplane"


class Stack:
    """Nothing of it is started yet, but for what a caller starts."""

    def __init__(self, name, work, peers, ports, store, protocol, added=(), **environment):
        self.name, self.work, self.peers = name, work / name, peers
        self.work.mkdir()
        self.store = store(self.work, peers, ports)
        self.jaeger = self.tempo = self.collector = None
        if can_trace(peers):
            self.make_collector(ports, added, environment)
        self.socket = self.work / "socket"
        self.sidecar = self.make_sidecar(protocol, ports)
        crossplane = Core if peers.has("crossplane", "Crossplane itself (what one once sent is played in its place), its speed and its API server") else Captures
        self.core = crossplane(self.work, peers, ports, self.socket)
        # What payloads are to be seen as: a capture is over before a store that is slow to start has the first.
        self.states = {"stored", "queued", "unchanged"} if self.core.is_real else {"stored", "queued"}
        self.pauses, self.started_at = None, time.time()
        # Counted over all processes of the sidecar, and when there was none while core ran.
        self.acknowledged, self.away = 0, []

    def make_collector(self, ports, added, environment):
        """With Jaeger and Tempo behind it."""
        self.jaeger = Jaeger(self.work, self.peers, ports)
        shipped, added = ["jaeger"], ["collect", *added]
        environment["JAEGER_ENDPOINT"] = f"127.0.0.1:{self.jaeger.otlp}"
        if self.peers.has("tempo", "Tempo and TraceQL"):
            self.tempo = Tempo(self.work, self.peers, ports)
            shipped.append("tempo")
            added += [f"{each}-tempo" for each in added if each == "processors"]
            environment["TEMPO_ENDPOINT"] = f"127.0.0.1:{self.tempo.otlp}"
        self.collector = Collector(self.work, self.peers, ports, shipped, added, **environment)

    def make_sidecar(self, protocol, ports):
        port = ports.one()
        self.metrics = f"http://127.0.0.1:{port}/metrics"
        environment = {"AWS_ENDPOINT_URL": self.store.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        if self.collector:
            otlp = self.collector.grpc if protocol == "grpc" else self.collector.http
            environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{otlp}", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
            environment |= {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": 1000}
        store = f"s3://{BUCKET}/{PREFIX.rstrip('/')}"
        command = [HERE / "first", os.environ["SPANPLANE"], "--socket-path", self.socket, "--store", store, "--metrics-address", f"127.0.0.1:{port}", "--viewer-address", "none"]
        return Process(self.work, "spanplane", command, **environment)

    def start_backends(self):
        self.jaeger.start()
        if self.tempo:
            self.tempo.start()

    def say(self, text):
        say_all(f"{self.name}: {text}")

    # The sidecar

    def start_sidecar(self):
        """Receives at once, whatever the store says: one without its bucket is not ready."""
        self.sidecar.start()
        eventually("the sidecar answers", lambda: get(self.metrics.removesuffix("/metrics") + "/healthz"), 10)

    def readiness(self):
        return readiness(self.metrics.removesuffix("/metrics"))

    def metric(self, name, **labels):
        found = counts(self.metrics, f"spanplane_{name}")
        return sum(value for each, value in found.items() if labels.items() <= dict(each).items())

    def check_none_failed(self, errors, since):
        """No emit of core's, unless the machine itself stood still: then nobody can answer in time."""
        stood_still = [end for _, end in self.pauses.spans() if end > since]
        if errors and stood_still:
            self.away += self.pauses.spans()
            self.peers.leave_out(f"that no emit fails ({errors} did)", f"this machine had {len(stood_still)} pauses meanwhile")
        else:
            assert not errors, (errors, self.answers())

    def answers(self):
        """How many, and how many of these within each bound, in seconds."""
        within = {float(dict(labels)["le"]): int(value) for labels, value in counts(self.metrics, "spanplane_ack_duration_seconds_bucket").items()}
        return max(within.values()), within

    def note_acknowledged(self):
        """A process takes its counts with it."""
        self.acknowledged += self.metric("messages_acknowledged_total")
        assert self.metric("messages_refused_total") == 0
        assert self.metric("spans_lost_total") == 0 and self.metric("objects_dropped_total") == 0

    def kill_and_restart_sidecar(self):
        """While it has nothing to answer: what it had answered is accounted for to the last message."""
        self.note_acknowledged()
        self.sidecar.kill()
        self.start_sidecar()

    def finish_sidecar(self):
        """It sends what it has within its time to stop."""
        self.note_acknowledged()
        self.sidecar.stop()
        assert self.sidecar.child.returncode == 0, self.sidecar.child.returncode

    # The bucket

    def document(self, key):
        body = self.store.client.get_object(Bucket=BUCKET, Key=PREFIX + key)["Body"].read()
        return unpacked(body).decode()

    # Jaeger

    def traces(self, **tags):
        """Spans of Jaeger by trace, as its own page asks for them."""
        return traces_of(self.jaeger, **tags)


def can_trace(peers):
    """Whether there is anything to send spans to."""
    return all(peers.has(name, "traces, that is all but the bucket and the index") for name in ("otelcol-peers", "jaeger"))


def say_all(text):
    print(f"e2e: {text} (after {time.monotonic() - START:.0f} s)", flush=True)


def traces_of(jaeger, **tags):
    query = urllib.parse.urlencode({"service": SERVICE, "limit": 20_000, "lookback": "1h", "tags": json.dumps(tags)})
    answer = json.loads(get(f"{jaeger.url}/api/traces?{query}", 60))
    return {trace["traceID"]: trace["spans"] for trace in answer["data"]}


def tags_of(span_or_log, field="tags"):
    return {tag["key"]: tag["value"] for tag in span_or_log[field]}


def unpacked(body):
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


START = time.monotonic()
