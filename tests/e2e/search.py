"""What Tempo finds by TraceQL, and what it has of each trace: the same as Jaeger, whole."""

import base64
import json
import time
import urllib.parse

from core import counts
from machine import eventually, get
from stack import tags_of
from trees import as_list

# Tempo shows what it took within a quarter of a minute.
PATIENCE = 60


class Searcher:
    def __init__(self, tempo):
        self.tempo = tempo

    def found(self, query):
        """Ids of the traces that match, of the last hour."""
        now = int(time.time())
        asked = urllib.parse.urlencode({"q": query, "limit": 20_000, "start": now - 3600, "end": now + 60})
        answer = json.loads(get(f"{self.tempo.url}/api/search?{asked}", 60))
        return {trace["traceID"].rjust(32, "0") for trace in answer.get("traces", [])}

    def check(self, query, wanted):
        """It finds these traces and no others."""
        assert wanted, f"nothing is wanted of {query}"
        seen = set()

        def agrees():
            nonlocal seen
            seen = self.found(query)
            return seen == wanted

        try:
            eventually(query, agrees, PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{query}: misses {list(wanted - seen)[:5]}, has beyond {list(seen - wanted)[:5]}") from error

    def spans(self, trace_id):
        answer = json.loads(get(f"{self.tempo.url}/api/v2/traces/{trace_id}", 30))["trace"]
        batches = answer.get("resourceSpans") or answer.get("batches")
        spans = [span for batch in batches for scope in batch["scopeSpans"] for span in scope["spans"]]
        return {base64.b64decode(span["spanId"]).hex(): span for span in spans}


def check_searches(stack, trees):
    """By name of the XR, by function, by status, by dropped resource."""
    searcher = Searcher(stack.tempo)
    trees = trees.values()
    ids = lambda suits: {tree.trace_id for tree in trees if suits(tree)}
    with_step = lambda suits: ids(lambda tree: any(suits(tags_of(step)) for step in tree.steps))
    queries = {}
    for name in {tree.tags["k8s.object.name"] for tree in trees if tree.subject.scenario not in ("load", "by hand")}:
        queries[f'{{ span.k8s.object.name = "{name}" }}'] = ids(lambda tree: tree.tags["k8s.object.name"] == name)
    for function in {tags_of(step).get("crossplane.function.name") for tree in trees for step in tree.steps} - {None, "function-load"}:
        queries[f'{{ span.crossplane.function.name = "{function}" }}'] = with_step(lambda tags: tags.get("crossplane.function.name") == function)
    queries["{ status = error }"] = ids(lambda tree: "error" in tree.tags)
    for name in {step["operationName"] for tree in trees for step in tree.steps if "error" in tags_of(step)}:
        failed = ids(lambda tree: any(step["operationName"] == name and "error" in tags_of(step) for step in tree.steps))
        queries[f'{{ name = "{name}" && status = error }}'] = failed
    for resource in {resource for tree in trees for _, resource in tree.subject.drops}:
        dropping = ids(lambda tree: resource in as_list(tree.tags.get("crossplane.resources.dropped.names", "[]")))
        queries[f'{{ span.crossplane.resources.dropped.names = "{resource}" }}'] = dropping
    for query, wanted in queries.items():
        searcher.check(query, wanted)
    check_whole(searcher, trees)
    check_nothing_cut(stack.tempo)
    stack.say(f"{len(queries)} TraceQL searches in Tempo find what Jaeger has")


def check_whole(searcher, trees):
    """By its id, each trace has the spans that it has in Jaeger, with as many attributes, events and links."""
    by_load = [tree for tree in trees if tree.subject.scenario == "load"]
    # Those are all alike.
    for tree in [tree for tree in trees if tree.subject.scenario != "load"] + by_load[:10]:
        found = searcher.spans(tree.trace_id)
        shown = {span["spanID"]: span for span in (tree.root, *tree.steps)}
        assert found.keys() == shown.keys(), tree.trace_id
        for span_id, span in found.items():
            keys = {attribute["key"] for attribute in span["attributes"]}
            tags = tags_of(shown[span_id]).keys()
            assert keys <= tags, (tree.trace_id, keys - tags)
            # What Jaeger adds: kind, scope and status.
            assert {tag for tag in tags - keys if tag.startswith(("crossplane.", "k8s."))} == set(), (tree.trace_id, tags - keys)
            assert len(span.get("events", [])) == len(shown[span_id]["logs"]), (tree.trace_id, span_id)
            links = [each for each in shown[span_id]["references"] if each["refType"] == "FOLLOWS_FROM"]
            assert len(span.get("links", [])) == len(links), (tree.trace_id, span_id)


def check_nothing_cut(tempo):
    """A counter that was never raised is not there; those beside it are."""
    metrics = f"{tempo.url}/metrics"
    assert sum(counts(metrics, "tempo_distributor_spans_received_total").values()) > 0
    truncated = counts(metrics, "tempo_distributor_attributes_truncated_total")
    assert sum(truncated.values()) == 0, truncated
