"""Writes what Grafana will read as TypeScript, for grafana.ts to hold against Grafana's types."""

import json
import pathlib
import sys

import expressions

(tempo,) = [source["jsonData"] for source in expressions.load(expressions.DATASOURCES)["datasources"] if source["type"] == "tempo"]
# The data source that a link leads to is one of those that are set up.
known = {source["uid"] for source in expressions.load(expressions.DATASOURCES)["datasources"]}
assert tempo["tracesToMetrics"]["datasourceUid"] in known, known

pathlib.Path(sys.argv[1], "checked.ts").write_text(
    "import type { CheckedDashboard, CheckedFilters } from './grafana';\n"
    f"export const dashboard: CheckedDashboard = {expressions.DASHBOARD.read_text(encoding='utf-8')};\n"
    f"export const filters: CheckedFilters = {json.dumps(tempo['search']['filters'])};\n",
    encoding="utf-8",
)
