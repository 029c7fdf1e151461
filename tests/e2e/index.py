"""What DuckDB reads from the index: every reconcile once, and as much as Crossplane says that it did."""

import collections
import os
import tempfile

import duckdb


class Index:
    """As anybody would read it who has no extension for S3 at hand."""

    def __init__(self, stack):
        self.base = duckdb.connect()
        # Partitions are in UTC, wherever this runs.
        self.base.sql("set timezone = 'UTC'")
        with tempfile.TemporaryDirectory() as folder:
            for key, _, body in stack.store.objects("v1/index/"):
                path = os.path.join(folder, key)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(body)
            self.base.sql(f"create table reconciles as from read_json('{folder}/v1/index/**/*.jsonl.zst', hive_partitioning = true)")
        self.base.sql("create table steps as select subject.composition, otel_trace_id, unnest(steps, recursive := false) as step from reconciles")

    def ask(self, query):
        return self.base.sql(query).fetchall()


def check_index(stack, trees):
    index = Index(stack)
    ask = index.ask
    [(lines,)] = ask("select count(*) from reconciles")
    twice = [trace_id for (trace_id,) in ask("select otel_trace_id from reconciles group by all having count(*) > 1")]
    # One whose parts came far apart, since there was no sidecar in between, has a line for each.
    assert all(trees[trace_id].was_away(stack.away) for trace_id in twice), twice
    assert {trace_id for (trace_id,) in ask("select otel_trace_id from reconciles")} == set(trees)
    partitions = ask("select count(*) from reconciles where strftime(started_at::timestamp, '%Y-%m-%d %H') != strftime(date, '%Y-%m-%d ') || lpad(hour::varchar, 2, '0')")
    assert partitions == [(0,)], "lines stand in the partition of their start"
    statuses = dict(ask("select status, count(*) from reconciles group by status"))
    if not twice:
        assert statuses == collections.Counter(tree.tags["crossplane.reconcile.status"] for tree in trees.values()), statuses
    states = dict(ask("select object.state, count(*) from reconciles group by all"))
    assert states.keys() <= {"stored", "unchanged", "queued"} and states.keys() >= stack.states - {"queued"}, states
    stack.say(f"{lines} lines in the index: {statuses}, objects {states}")
    return index


def check_halves(stack, index):
    """What was acknowledged, over all processes, is there."""
    [(halves,)] = index.ask("select sum((step.request is not null)::int + (step.ended_at is not null)::int) from steps")
    assert halves == stack.acknowledged, (halves, stack.acknowledged)


def check_slow_step(index):
    """The scenario's function takes 3 s on purpose."""
    slow = index.ask("select min(step.duration_ms) from steps where composition = 'hanger' and step.name = 'sleep' and step.error_type is null")
    assert slow[0][0] >= 3000, slow


def check_calls(index, called):
    """As often as core says that it called; a function that asks for more is called once more, and emitted once."""
    steps = dict(index.ask("select step.function, count(*) + sum((len(step.requirements) > 0)::int) from steps where composition != '' group by all"))
    for function, count in called.items():
        assert steps[function] == count, (function, steps[function], count)
