"""Every PromQL expression under config/, and every attribute of a span that is named there."""

import json
import pathlib
import re
import urllib.parse

import yaml

CONFIG = pathlib.Path(__file__).parents[2] / "config"
DASHBOARD = CONFIG / "grafana/dashboard.json"
DATASOURCES = CONFIG / "grafana/datasources.yaml"
ALERTS = CONFIG / "prometheus/alerts.yaml"
SCRAPE = CONFIG / "prometheus/scrape.yaml"

# What Grafana puts in place of each; the longest name goes first.
VARIABLES = {"$__rate_interval": "15s", "$__range": "1m", "$__tags": 'function="function-pythonic"', "$instance": ".+", "$function": ".+", "$job": "spanplane"}


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def filled_in(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def of_dashboard():
    """Title of the panel, expression, and the labels that its legend shows."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            legend = re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))
            yield panel["title"], filled_in(target["expr"]), legend


def of_datasources():
    for source in load(DATASOURCES)["datasources"]:
        for query in source["jsonData"].get("tracesToMetrics", {}).get("queries", []):
            yield query["name"], filled_in(query["query"].replace("$$", "$")), []


def of_variables():
    """The metric, its matchers and the label that each list of the dashboard is made of."""
    for variable in json.loads(DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
            yield variable["name"], f"count by ({label}) ({filled_in(series)})", [label]


def of_alerts():
    for group in load(ALERTS)["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], []


def metrics_in(text):
    """Of the sidecar."""
    return set(re.findall(r"\bspanplane_[a-z_]+[a-z]\b", text))


def grouped_by(expression):
    return {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", labels)}


def matched(expression, metric):
    """Names of this metric's labels that are compared with something."""
    return {label for matchers in re.findall(metric + r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\s*\"", matchers)}


def attributes():
    """Those that TraceQL asks for in links and alerts, and those that the data sources name."""
    links = urllib.parse.unquote(DASHBOARD.read_text(encoding="utf-8"))
    asked = re.findall(r"span\.([a-z0-9_.]+)", links + ALERTS.read_text(encoding="utf-8"))
    named = re.findall(r"\b((?:crossplane|k8s)\.[a-z0-9_.]+[a-z0-9])\b", DATASOURCES.read_text(encoding="utf-8"))
    return set(asked) | set(named)
