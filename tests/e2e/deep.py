"""Fewer scenarios, with SeaweedFS, by http/protobuf and through processors, while the sidecar is killed; then core's speed."""

import bucket
import index
import limits
import search
import speed
import trees
from broad import payload_states
from machine import eventually
from servers import HERE, seaweedfs
from stack import Stack

SCENARIOS = {"dropper", "secrets", "steady"}


def make(work, peers, ports):
    return Stack("deep", work, peers, ports, seaweedfs, "http/protobuf", ["processors"])


def start(stack):
    stack.start_backends()
    stack.collector.start()
    stack.start_sidecar()
    stack.core.up()


def play_before_the_store(stack):
    """Killed while payloads wait; the next process has everything that was answered."""
    stack.core.play("dropper").finish()
    eventually("Jaeger has a BucketSet whose payloads are queued", lambda: "queued" in payload_states(stack, "BucketSet"))
    assert payload_states(stack, "BucketSet") == {"queued"}
    stack.core.rest()
    stack.kill_and_restart_sidecar()
    stack.store.start()
    eventually("what waited is stored", lambda: stack.metric("objects_stored_total") > 5)
    stack.say("killed while payloads waited for the store, now they are there")


def play_without_collector(stack):
    """Killed while spans wait."""
    stack.collector.stop()
    stack.core.play("secrets").finish()
    eventually("a Login is stored", lambda: any(True for _ in stack.store.objects("v1/reconciles/Login.")))
    eventually("the missing Collector is noticed", lambda: stack.metric("export_failures_total") > 0)
    stack.core.rest()
    stack.kill_and_restart_sidecar()
    stack.collector.start()
    eventually("Jaeger has a Login", lambda: payload_states(stack, "Login"))
    stack.say("killed while spans waited for the Collector, now they are there")


def play_failures(stack):
    """Of the scenario `broken`, what fails at once, and one that only takes its time."""
    if not stack.core.is_real:
        return stack.core.play("broken").finish()
    setup = stack.core.driver.parent / "scenarios/broken/setup.yaml"
    stack.core.kubectl("apply", "-f", str(setup))
    stack.core.kubectl("wait", "--for=condition=Established", "xrd", "--all", "--timeout=60s")
    stack.core.eventually_applies(HERE / "failing.yaml")
    eventually("Jaeger has one that is slow", lambda: payload_states(stack, "Hanger"))
    # It is tried again and again, and fails in the same way.
    for kind in ("Fatal", "GrpcError"):
        eventually(f"Jaeger has a {kind} twice", lambda: "unchanged" in payload_states(stack, kind))


def play(stack):
    start(stack)
    play_before_the_store(stack)
    play_without_collector(stack)
    steady = stack.core.play("steady")
    play_failures(stack)
    steady.finish()
    eventually("a Calm is unchanged", lambda: "unchanged" in payload_states(stack, "Calm"))
    stack.core.rest()
    stack.check_none_failed(stack.core.errors(), stack.started_at)
    called = stack.core.calls()
    stack.finish_sidecar()
    check(stack, called)
    if stack.core.is_real:
        measure(stack)


def measure(stack):
    """With a sidecar that is killed and one that is late, so that what comes of it is not all there is."""
    stack.core.kubectl("annotate", "calms.steady.example.org", "--all", "crossplane.io/paused-")
    speed.check_speed(stack)
    stack.core.rest()
    stack.core.stop()
    stack.sidecar.stop()
    index.check_index(stack, trees.check_traces(stack, SCENARIOS))


def check(stack, called):
    found = trees.check_traces(stack, SCENARIOS)
    limits.check_limits(stack)
    limits.check_processed(stack)
    bucket.check_bucket(stack)
    table = index.check_index(stack, found)
    index.check_halves(stack, table)
    if stack.core.is_real:
        index.check_slow_step(table)
    if stack.core.is_real and not stack.away:
        index.check_calls(table, called)
    if stack.tempo:
        search.check_searches(stack, found)
