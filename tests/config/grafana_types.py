"""Writes what Grafana will read as TypeScript, for grafana.ts to hold against Grafana's types.

Links have no type there: they lead to Explore, with a query for the data source that is chosen above.
"""

import json
import pathlib
import re
import sys
import urllib.parse

import expressions

(tempo,) = [source["jsonData"] for source in expressions.load(expressions.DATASOURCES)["datasources"] if source["type"] == "tempo"]
# The data source that a link leads to is one of those that are set up.
known = {source["uid"] for source in expressions.load(expressions.DATASOURCES)["datasources"]}
assert tempo["tracesToMetrics"]["datasourceUid"] in known, known

text = expressions.DASHBOARD.read_text(encoding="utf-8")
for link in re.findall(r'"url": "([^"]+)"', text):
    path, query = link.split("?", 1)
    (pane,) = json.loads(urllib.parse.parse_qs(query)["panes"][0]).values()
    (traces,) = pane["queries"]
    assert path == "/explore" and traces["datasource"] == {"type": "tempo", "uid": pane["datasource"]}, link
    assert pane["datasource"] == "${tempo_datasource}" and traces["queryType"] == "traceql", link

pathlib.Path(sys.argv[1], "checked.ts").write_text(
    "import type { CheckedDashboard, CheckedFilters } from './grafana';\n"
    f"export const dashboard: CheckedDashboard = {text};\n"
    f"export const filters: CheckedFilters = {json.dumps(tempo['search']['filters'])};\n",
    encoding="utf-8",
)
