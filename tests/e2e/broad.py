"""All scenarios, with MinIO and by gRPC, while store and Collector are away for a minute each."""

import time

import again
import bucket
import by_hand
import index
import limits
import load
import sampling
import search
import trees
from machine import eventually
from payloads import payload_events
from servers import BUCKET, ROOT, Collector, Jaeger, minio, seaweedfs
from stack import Stack

OUTAGE = 60
SCENARIOS = {"network", "dropper", "requirements", "secrets", "steady", "operation", "broken"}
FUNCTIONS = {"function-pythonic", "function-lab", "function-auto-ready"}


def make(work, peers, ports):
    folder = work / "sampling"
    folder.mkdir()
    kept = Jaeger(folder, peers, ports, "kept")
    sampler = Collector(folder, peers, ports, ["tail-sampling"], ["quiet"], "sampler", SAMPLED_ENDPOINT=f"127.0.0.1:{kept.otlp}")
    has_minio = peers.has("minio", "MinIO, a bucket that is missing, and the lifecycle rule (SeaweedFS takes its place for the rest)")
    made = Stack("broad", work, peers, ports, minio if has_minio else seaweedfs, "grpc", ["onwards"], SAMPLER_ENDPOINT=f"127.0.0.1:{sampler.grpc}")
    made.kept, made.sampler, made.has_minio, made.scenarios, made.ports = kept, sampler, has_minio, set(SCENARIOS), ports
    return made


def payload_states(stack, kind):
    found = stack.traces(**{"k8s.object.kind": kind}).values()
    return {event["crossplane.payload.state"] for spans in found for span in spans for event in payload_events(span)}


def start(stack):
    stack.store.start()
    stack.start_backends()
    stack.kept.start()
    stack.sampler.start()
    stack.collector.start()
    stack.start_sidecar()
    if stack.peers.has("grpcurl", "calls by reflection"):
        by_hand.send_by_hand(stack)
        stack.scenarios.add("by hand")
    stack.core.up()
    if stack.core.is_real:
        # The manifest for later change logs is taken by a real API server.
        stack.core.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "config/deployment-runtime-config.yaml"))


def play_without_bucket(stack):
    """Payloads wait in the outbox, spans don't wait for them."""
    eventually("something is acknowledged", lambda: stack.metric("messages_acknowledged_total") > 50)
    eventually("the missing bucket is noticed", lambda: stack.metric("store_failures_total") > 0)
    assert stack.metric("objects_stored_total") == 0 and stack.metric("objects_dropped_total") == 0
    status, reason = stack.readiness()
    assert status == 503 and "bucket" in reason, (status, reason)
    eventually("Jaeger has a Lookup whose payloads are queued", lambda: "queued" in payload_states(stack, "Lookup"))
    assert payload_states(stack, "Lookup") == {"queued"}
    stack.store.client.create_bucket(Bucket=BUCKET)
    bucket.apply_lifecycle(stack)
    eventually("what waited is stored", lambda: stack.metric("objects_stored_total") > 5)
    eventually("the sidecar is ready", lambda: stack.readiness()[0] == 200)
    stack.say("the bucket was missing, now all that waited is there")


def play_without_collector(stack):
    """Payloads arrive, spans wait, and the metrics say so."""
    stack.collector.stop()
    gone = time.monotonic()
    stack.core.play("dropper").finish()
    eventually("a BucketSet is stored", lambda: any(True for _ in stack.store.objects("v1/reconciles/BucketSet.")))
    eventually("the missing Collector is noticed", lambda: stack.metric("export_failures_total") > 0)
    assert not stack.traces(**{"k8s.object.kind": "BucketSet"})
    time.sleep(max(0, gone + OUTAGE - time.monotonic()))
    stack.collector.start()
    eventually("Jaeger has a BucketSet", lambda: payload_states(stack, "BucketSet"))
    stack.say(f"the Collector was away for {OUTAGE} s, now the traces are there")


def play_without_store(stack):
    """Spans arrive, and say that their payloads are on their way."""
    stack.store.stop()
    gone = time.monotonic()
    stack.core.play("secrets").finish()
    eventually("Jaeger has a Login whose payloads are queued", lambda: "queued" in payload_states(stack, "Login"))
    assert payload_states(stack, "Login") == {"queued"}
    time.sleep(max(0, gone + OUTAGE - time.monotonic()))
    stack.store.start()
    eventually("no payload waits any more", lambda: stack.metric("outbox_bytes", kind="objects") == 0)
    stack.say(f"the store was away for {OUTAGE} s, now the payloads are there")


def check_core(stack):
    """No emit failed, but those of functions that hung to core's own deadline: then core has no time left to emit."""
    errors = stack.core.errors()
    hung = {key: errors.pop(key) for key in (("function-dead", "response"), ("function-lab", "response")) if key in errors}
    stack.check_none_failed(errors, stack.started_at)
    return stack.core.calls(), sum(hung.values())


def play(stack):
    start(stack)
    long_ones = [stack.core.play("broken"), stack.core.play("operation")]
    stack.core.play("requirements").finish()
    if stack.has_minio:
        play_without_bucket(stack)
    others = [stack.core.play("steady"), stack.core.play("network")]
    play_without_collector(stack)
    play_without_store(stack)
    for each in (*others, *long_ones):
        each.finish()
    if stack.peers.has("ghz", "load, and the first layout of StepMeta"):
        load.check_load(stack)
        stack.scenarios.add("load")
    stack.core.rest()
    called, failed = check_core(stack)
    stack.core.stop()
    stack.finish_sidecar()
    check(stack, called)
    if stack.core.is_real:
        stack.say(f"core counted {failed} emits that failed, all of functions that hung to its own deadline")


def check(stack, called):
    found = trees.check_traces(stack, stack.scenarios)
    limits.check_limits(stack)
    limits.check_metrics(stack, FUNCTIONS)
    bucket.check_bucket(stack)
    if stack.has_minio:
        bucket.check_lifecycle(stack)
    again.check_calls(stack, stack.ports)
    table = index.check_index(stack, found)
    index.check_halves(stack, table)
    if stack.core.is_real:
        index.check_slow_step(table)
    if stack.core.is_real and not stack.away:
        # The third is called several times a step by what fails on purpose.
        index.check_calls(table, {function: called[function] for function in ("function-pythonic", "function-auto-ready")})
    sampling.check_sampling(stack, stack.kept, found)
    if stack.tempo:
        search.check_searches(stack, found)
