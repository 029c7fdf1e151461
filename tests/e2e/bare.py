"""Without a Collector or Jaeger: what a Crossplane once sent, in SeaweedFS and in the index."""

import bucket
import index
from machine import eventually
from servers import seaweedfs
from stack import Stack

SCENARIOS = ("network", "dropper", "requirements", "secrets", "steady", "operation", "broken")


def make(work, peers, ports):
    return Stack("bare", work, peers, ports, seaweedfs, "grpc")


def play(stack):
    """Killed while payloads wait; the next process has everything that was answered."""
    stack.start_sidecar()
    stack.core.up()
    for scenario in SCENARIOS:
        stack.core.play(scenario).finish()
    stack.core.rest()
    stack.core.stop()
    eventually("the missing store is noticed", lambda: stack.metric("store_failures_total") > 0)
    stack.kill_and_restart_sidecar()
    stack.store.start()
    eventually("what waited is stored", lambda: stack.metric("objects_stored_total") > 5 and stack.metric("outbox_bytes", kind="objects") == 0)
    stack.finish_sidecar()
    bucket.check_bucket(stack)
    index.check_halves(stack, index.Index(stack))
