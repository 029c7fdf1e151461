"""What DuckDB reads from the index: every reconcile once, and as much as Crossplane says that it did."""

import collections
import os
import tempfile

import duckdb

from peers import notes, objects, tags_of


def download(folder):
    """As anybody would who has no extension for S3 at hand."""
    for key, _, body in objects("v1/index/"):
        path = os.path.join(folder, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(body)


def check_index(roots):
    with tempfile.TemporaryDirectory() as folder:
        download(folder)
        duckdb.sql(f"create table reconciles as from read_json('{folder}/v1/index/**/*.jsonl.zst', hive_partitioning = true)")
    ask = lambda query: duckdb.sql(query).fetchall()
    # Partitions are in UTC, wherever this runs.
    duckdb.sql("set timezone = 'UTC'")
    duckdb.sql("create table steps as select subject.composition, otel_trace_id, unnest(steps, recursive := false) as step from reconciles")

    [(lines, distinct)] = ask("select count(*), count(distinct trace_id) from reconciles")
    assert lines == distinct, f"{lines} lines of {distinct} reconciles"
    assert {trace_id for (trace_id,) in ask("select otel_trace_id from reconciles")} == set(roots)
    partitions = ask("select count(*) from reconciles where strftime(started_at::timestamp, '%Y-%m-%d %H') != strftime(date, '%Y-%m-%d ') || lpad(hour::varchar, 2, '0')")
    assert partitions == [(0,)], "lines stand in the partition of their start"
    statuses = dict(ask("select status, count(*) from reconciles group by status"))
    assert statuses == collections.Counter(tags_of(root)["crossplane.reconcile.status"] for root in roots.values()), statuses

    # What was acknowledged, over all processes, and what core says that it called.
    told = notes()
    [(halves,)] = ask("select sum((step.request is not null)::int + (step.ended_at is not null)::int) from steps")
    assert halves == told["acknowledged"], (halves, told)
    # A function that asks for more is called once more, and emitted once.
    calls = ask("select step.function, count(*) + sum((len(step.requirements) > 0)::int) from steps where composition != '' group by all")
    for function, count in calls:
        assert count == told["calls of " + function], (function, count, told)
    assert len(calls) == 3, calls

    slowest = ask("select step.name, step.function, step.duration_ms from steps where composition != '' order by 3 desc limit 1")
    assert slowest[0][:2] == ("sleep", "function-lab") and slowest[0][2] >= 3000, slowest
    states = dict(ask("select object.state, count(*) from reconciles group by all"))
    assert states.keys() <= {"stored", "unchanged", "queued"} and states["unchanged"] > 0, states
    print(f"e2e: {lines} lines in the index: {statuses}, objects {states}, slowest step {slowest[0]}")
