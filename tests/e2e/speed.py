"""Whether core notices: its reconciles without the inspector, with it, without store and Collector, without the sidecar, and while that dies."""

import collections
import time

from core import counts_in
from machine import eventually, get

TOUCHES = 24
CONTROLLER = "composite/calms.steady.example.org"
METRIC = "controller_runtime_reconcile_time_seconds"


def reconciles(core):
    """How many so far, how long they took together, and how many within each bound."""
    metrics = get(core.metrics)
    of_ours = lambda name: {labels: value for labels, value in counts_in(metrics, f"{METRIC}_{name}").items() if ("controller", CONTROLLER) in labels}
    within = collections.Counter({float(dict(labels)["le"]): value for labels, value in of_ours("bucket").items()})
    return sum(of_ours("count").values()), sum(of_ours("sum").values()), within


def touch(core, mark, between=lambda: None):
    """Has every Calm reconciled again and again."""
    for number in range(TOUCHES):
        core.kubectl("annotate", "calms.steady.example.org", "--all", "--overwrite", f"touched={mark}-{number}")
        between()


def bound_of(within, count, share):
    """The bucket in which that share of all ends."""
    return min(bound for bound, value in within.items() if value >= share * count)


class Phases:
    """Each with a core of its own, that counts from zero."""

    def __init__(self, stack):
        self.stack, self.core, self.rows = stack, stack.core, []

    def measure(self, name, flags="", between=lambda: None):
        self.core.restart(flags)
        eventually("core reconciles", lambda: reconciles(self.core)[0] >= 2)
        count, seconds, within = reconciles(self.core)
        touch(self.core, name, between)
        eventually("all of it is reconciled", lambda: reconciles(self.core)[0] - count >= TOUCHES)
        after = reconciles(self.core)
        count, seconds = after[0] - count, after[1] - seconds
        within = collections.Counter({bound: value - within[bound] for bound, value in after[2].items()})
        errors = sum(self.core.errors().values())
        self.rows.append((name, count, seconds / count, bound_of(within, count, 0.5), bound_of(within, count, 0.99), errors))
        return errors

    def show(self):
        self.stack.say("core's reconciles of an XR of 3 steps:")
        print(f"  {'':34} {'count':>6} {'mean':>9} {'half in':>9} {'99 % in':>9} {'emits failed':>13}")
        for name, count, mean, half, most, errors in self.rows:
            print(f"  {name:34} {count:6.0f} {mean * 1000:6.1f} ms {half * 1000:6.0f} ms {most * 1000:6.0f} ms {errors:13}", flush=True)


def check_speed(stack):
    """Figures are shown; what is asserted is that no emit fails while there is a sidecar, whatever else is away."""
    phases = Phases(stack)
    phases.measure("without the inspector", flags="--enable-pipeline-inspector=false")
    stack.start_sidecar()
    since = time.time()
    stack.check_none_failed(phases.measure("with the sidecar"), since)
    stack.store.stop()
    stack.collector.stop()
    stack.check_none_failed(phases.measure("store and Collector away"), since)
    assert stack.metric("messages_refused_total") == 0
    stack.store.start()
    stack.collector.start()
    killed_and_restarted(stack, phases)
    started_late(stack, phases)
    phases.show()


def killed_and_restarted(stack, phases):
    """What is sent while there is no process, and until grpc-go tries again, is lost, and core counts it; all else goes on."""
    calls = 0

    def kill_now_and_then():
        nonlocal calls
        calls += 1
        if calls % (TOUCHES // 4) == 0:
            gone = time.time()
            stack.sidecar.kill()
            stack.start_sidecar()
            stack.away.append((gone, time.time() + 2))

    phases.measure("killed and restarted four times", between=kill_now_and_then)
    check_whole_again(stack)


def started_late(stack, phases):
    """Core counts what nobody took, reconciles as ever, and is heard once there is somebody."""
    stack.sidecar.stop()
    gone = time.time()
    assert phases.measure("sidecar not started yet") > 0
    stack.start_sidecar()
    check_whole_again(stack)
    stack.away.append((gone, time.time()))


def check_whole_again(stack):
    """Emits succeed again, and from then on all do."""
    calm = ("annotate", "calms.steady.example.org", "--all", "--overwrite")

    def heard():
        stack.core.kubectl(*calm, f"heard={time.monotonic()}")
        return stack.metric("messages_acknowledged_total") > 0

    eventually("core is heard again", heard, 90)
    since, failed = time.time(), sum(stack.core.errors().values())
    for number in range(5):
        stack.core.kubectl(*calm, f"again={number}")
    before = stack.metric("messages_acknowledged_total")
    eventually("more of it is heard", lambda: stack.metric("messages_acknowledged_total") - before >= 12)
    stack.check_none_failed(sum(stack.core.errors().values()) - failed, since)
