"""What Jaeger shows: each reconcile as a tree, as the table of scenarios has it, linked to the one before."""

import collections
import json

from machine import eventually
from payloads import Payloads, payload_events
from scenarios import subject_of, subjects
from stack import tags_of


def references(span, kind):
    return [(each["traceID"], each["spanID"]) for each in span["references"] if each["refType"] == kind]


def events_of(span, name):
    return [fields for fields in (tags_of(log, "fields") for log in span["logs"]) if fields["event"] == name]


def as_list(value):
    """Jaeger shows lists as JSON."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else [value]


class Tree:
    """One reconcile: its root, and its steps in order."""

    def __init__(self, trace_id, spans):
        self.trace_id = trace_id
        assert len({span["spanID"] for span in spans}) == len(spans), f"{trace_id} has a span twice"
        [self.root] = [span for span in spans if not references(span, "CHILD_OF")]
        self.tags = tags_of(self.root)
        self.steps = sorted((span for span in spans if span is not self.root), key=lambda span: tags_of(span)["crossplane.step.index"])
        self.subject = subject_of(self.tags["k8s.object.kind"], self.tags["k8s.object.name"])
        self.start = self.root["startTime"]
        self.end = self.start + self.root["duration"]

    def was_away(self, away):
        """Whether the sidecar was not there for a part of it; what core sent meanwhile is lost to it."""
        return any(start * 1e6 <= self.end + 1e6 and self.start - 1e6 <= end * 1e6 for start, end in away)

    def drops(self):
        spans = [("", self.root), *((tags_of(step).get("crossplane.step.name"), step) for step in self.steps)]
        return {(name, event["crossplane.resource.name"]) for name, span in spans for event in events_of(span, "resource.dropped")}


def check_status(span, failure):
    tags = tags_of(span)
    if not failure:
        assert "error" not in tags and "error.type" not in tags and "otel.status_code" not in tags, tags
    else:
        error_type, words = failure
        assert tags["error"] is True and tags["otel.status_code"] == "ERROR", tags
        assert tags["error.type"] == error_type and words in tags["otel.status_description"], tags


def check_shape(tree):
    """Steps are below the root, within it, and look like what they are."""
    assert tree.root["operationName"] == tree.subject.root_name, tree.root
    assert tree.tags["crossplane.reconcile.steps"] == len(tree.steps) > 0, tree.trace_id
    for step in tree.steps:
        tags = tags_of(step)
        assert references(step, "CHILD_OF") == [(tree.trace_id, tree.root["spanID"])], step
        assert step["operationName"] == f"RunFunction {tags.get('crossplane.step.name') or tags['crossplane.function.name']}", step
        assert tags["k8s.object.name"] == tree.tags["k8s.object.name"] and tags["span.kind"] == "client", step
        end = step["startTime"] + step["duration"]
        # Jaeger cuts nanoseconds, of the start and of the duration.
        assert tree.start <= step["startTime"] and end <= tree.end + 1, step
        assert all(step["startTime"] <= log["timestamp"] <= end + 1 for log in step["logs"]), step


def check_pipeline(tree):
    """The steps that the table says, in order; only the last may fail, and has to if the table says so."""
    subject = tree.subject
    names = [(step["operationName"].removeprefix("RunFunction "), tags_of(step).get("crossplane.function.name", "")) for step in tree.steps]
    assert names == list(subject.steps), (tree.trace_id, names)
    assert [tags_of(step)["crossplane.step.index"] for step in tree.steps] == list(range(len(names))), tree.trace_id
    starts = [step["startTime"] for step in tree.steps]
    assert starts == sorted(starts), tree.trace_id
    for step in tree.steps[:-1]:
        check_status(step, ())
    # What still hung when the sidecar was told to stop has not failed yet.
    is_unfinished = tree.tags["crossplane.reconcile.status"] == "incomplete" and "error.type" not in tree.tags
    if is_unfinished:
        assert subject.failure[:1] == ("no_response",), tree.tags
    failure = () if is_unfinished else subject.failure
    check_status(tree.root, failure)
    check_status(tree.steps[-1], failure)
    if failure:
        assert tree.tags["crossplane.failed.step"] == subject.steps[-1][0], tree.tags
    answered = tree.steps[:-1] if subject.failure or is_unfinished else tree.steps
    for step in answered:
        assert [event["event"] for event in payload_events(step)] == ["function.request", "function.response"], step
    assert tree.drops() <= subject.drops, (tree.trace_id, tree.drops())


def check_links(trees, away):
    """Each reconcile is linked to the one before of the same subject."""
    histories = collections.defaultdict(list)
    for tree in trees:
        histories[tree.tags.get("k8s.object.uid", (tree.subject, tree.tags["k8s.object.name"]))].append(tree)
    for history in histories.values():
        history.sort(key=lambda tree: (tree.start, tree.trace_id))
        ids = [(tree.trace_id, tree.root["spanID"]) for tree in history]
        linked = [references(tree.root, "FOLLOWS_FROM") for tree in history]
        if any(tree.was_away(away) for tree in history):
            # One that was cut short is waited for while the next ones pass it by, and finds another before it then.
            followed = [link for links in linked for link in links]
            assert sorted(map(len, linked)) == [0, *[1] * (len(history) - 1)] and set(followed) <= set(ids), (history[0].tags, linked)
        else:
            assert linked == [[], *([before] for before in ids[:-1])], (history[0].tags, ids, linked)
    return len(histories)


def check_told(subject, trees):
    """What at least one reconcile of a subject has to tell."""
    assert trees, f"no trace of {subject.kind} {subject.name}"
    assert {drop for tree in trees for drop in tree.drops()} == subject.drops, subject
    if subject.drops:
        names = {name for tree in trees for name in as_list(tree.tags.get("crossplane.resources.dropped.names", "[]"))}
        assert names == {resource for _, resource in subject.drops}, names
    steps = [(tags_of(step).get("crossplane.step.name"), step) for tree in trees for step in tree.steps]
    for name, words in subject.results:
        told = [event["crossplane.result.message"] for step, span in steps if step == name for event in events_of(span, "function.result")]
        assert any(words in message for message in told), (subject, words)
    for name, attribute, value in subject.shows:
        shown = {each for step, span in steps if step == name for each in as_list(tags_of(span).get(attribute, "[]"))}
        assert value in shown, (subject, attribute, shown)
    if subject.failure and subject.scenario != "by hand":
        assert any("error.type" in tree.tags for tree in trees), subject


def check_traces(stack, scenarios):
    """Returns the trees by trace id."""
    payloads = Payloads(stack)
    taken = {(span["traceId"], span["spanId"]) for span in stack.collector.spans()}
    eventually("Jaeger has all that the Collector took", lambda: {(id, span["spanID"]) for id, spans in stack.traces().items() for span in spans} == taken)
    trees = {trace_id: Tree(trace_id, spans) for trace_id, spans in stack.traces().items()}
    cut = 0
    for tree in trees.values():
        check_shape(tree)
        for step in tree.steps:
            payloads.check(step)
        payloads.check_root(tree.root)
        try:
            check_pipeline(tree)
        except AssertionError:
            if not tree.was_away(stack.away):
                raise
            cut += 1
    # Which of these a payload is depends on how fast the store is; that it opens does not.
    assert payloads.states <= {"stored", "unchanged", "queued"} and payloads.states >= stack.states, payloads.states
    histories = check_links(trees.values(), stack.away)
    for subject in subjects(scenarios):
        check_told(subject, [tree for tree in trees.values() if tree.subject is subject])
    stack.say(f"{len(trees)} traces of {histories} subjects in Jaeger, {payloads.opened} payloads opened from them; {cut} cut short by an absence of the sidecar")
    return trees
