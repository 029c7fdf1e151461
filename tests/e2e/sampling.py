"""What `config/collector/tail-sampling.yaml` lets through: all that failed, changed or dropped something, and a share of the rest."""

from machine import eventually
from stack import traces_of


def is_of_interest(tree):
    tags = tree.tags
    return "error" in tags or tags["crossplane.reconcile.changed"] is True or "crossplane.resources.dropped.count" in tags or "crossplane.flapping.count" in tags


def check_sampling(stack, kept_by, trees):
    wanted = {trace_id for trace_id, tree in trees.items() if is_of_interest(tree)}
    rest = trees.keys() - wanted
    eventually("all that is of interest is kept", lambda: wanted <= traces_of(kept_by).keys(), 30)
    kept = traces_of(kept_by)
    assert kept.keys() <= trees.keys(), kept.keys() - trees.keys()
    for trace_id, spans in kept.items():
        assert len(spans) == 1 + len(trees[trace_id].steps), trace_id
    # Each is kept with a chance of one in ten, so that all of these are is out of the question.
    assert len(rest) >= 20, len(rest)
    passed = len(rest & kept.keys())
    assert passed < len(rest), (passed, len(rest))
    stack.say(f"tail sampling kept all {len(wanted)} of interest, and {passed} of the other {len(rest)}")
