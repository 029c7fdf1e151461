"""A real Prometheus scrapes a real sidecar that gets what a real Crossplane sent, and is asked every expression under config/."""

import contextlib
import http.server
import json
import math
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import expressions
import yaml

CAPTURES = pathlib.Path(__file__).parents[1] / "fixtures/captures"
PLAYED = [CAPTURES / f"{name}.jsonl.zst" for name in ("broken", "dropper", "steady-start", "secrets")]
# No message of a real Crossplane is odd; this one is no protobuf at all.
ODD = b'{"rpc":"EmitRequest","received_at_ns":0,"raw_b64":"/w=="}\n'
PATIENCE = 90


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes every batch of spans, by OTLP over HTTP, and keeps it as it came."""

    batches = []

    @classmethod
    def has(cls, attribute):
        """In protobuf a key stands as it is, behind its tag and its length."""
        key = bytes([0x0A, len(attribute)]) + attribute.encode()
        return any(key in batch for batch in cls.batches)

    def do_POST(self):
        self.batches.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Prometheus:
    def __init__(self, port):
        self.api = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path, **query):
        try:
            with urllib.request.urlopen(f"{self.api}/{path}?{urllib.parse.urlencode(query)}", timeout=5) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"config: {path} {query}: {json.load(error)['error']}")

    def values(self, expression):
        """Those that a panel can draw."""
        return [each["metric"] for each in self.ask("query", query=expression)["result"] if not math.isnan(float(each["value"][1]))]

    def labels(self, metric):
        return {label for series in self.ask("series", **{"match[]": metric}) for label in series}


def eventually(what, probe):
    """Asks until nothing is missing; a real system has no other way to tell."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            missing = probe()
        except OSError as error:
            missing = error
        if not missing:
            return
        if time.monotonic() > end:
            sys.exit(f"config: {what}: not within {PATIENCE} s: {missing}")
        time.sleep(0.5)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(each).getsockname()[1] for each in sockets]


def settings(metrics_port):
    """Ours, with pods that are named by hand: the sidecar's port, and another of the same pod's."""
    config = expressions.load(expressions.SCRAPE)
    (job,) = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    pod = {"__meta_kubernetes_namespace": "crossplane-system", "__meta_kubernetes_pod_name": "crossplane-0"}
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{metrics_port}"], "labels": {**pod, "__meta_kubernetes_pod_container_port_name": "spanplane"}},
        {"targets": ["127.0.0.1:1"], "labels": {**pod, "__meta_kubernetes_pod_container_port_name": "webhooks"}},
    ]
    config["rule_files"] = [str(expressions.ALERTS)]
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return yaml.safe_dump(config)


def check_targets(prometheus):
    found = prometheus.ask("targets")
    (target,) = found["activeTargets"]
    assert target["labels"] == {"job": "spanplane", "namespace": "crossplane-system", "pod": "crossplane-0", "instance": "crossplane-0"}, target
    assert len(found["droppedTargets"]) == 1, found["droppedTargets"]


def without_answer(prometheus, asked):
    """Expressions that have nothing to show, or not the labels that their legend shows. What can only count in trouble shows its zero."""
    for title, expression, legend in asked:
        shown = prometheus.values(expression)
        if not shown or any(label not in each for each in shown for label in legend):
            yield f"{title}: {expression}"


def check_rules(prometheus):
    """All of them evaluate, over metrics and labels that there are."""
    groups = prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(list(expressions.of_alerts())), rules
    sick = [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"]
    assert not sick, sick
    for name, expression, _ in expressions.of_alerts():
        metrics = expressions.metrics_in(expression) or {"up"}
        for metric in metrics:
            unknown = (expressions.grouped_by(expression) | expressions.matched(expression, metric) | {"job"}) - prometheus.labels(metric)
            assert not unknown, f"{name}: there is no {metric} with {unknown}"
    dropped = 'ALERTS{alertname="CrossplaneResourceDropped", alertstate="firing", step="tidy", resource="bucket-b"}'
    eventually("what the captures hold is told", lambda: not prometheus.values(dropped))


def check_completeness(metrics_port):
    """The dashboard shows every metric that there is, and none that there isn't."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    counted = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE ")}
    shown = {name for _, expression, _ in expressions.of_dashboard() for name in expressions.metrics_in(expression)}
    bare = {name.removesuffix("_bucket").removesuffix("_count") if counted.get(name) is None else name for name in shown}
    difference = bare ^ counted.keys()
    assert not difference, f"on the dashboard or in the program, but not in both: {difference}"


def zstd_frame(text):
    """The shortest way to a capture: one block, not compressed."""
    header = bytes([0x28, 0xB5, 0x2F, 0xFD, 0x20, len(text)])
    return header + (len(text) << 3 | 1).to_bytes(3, "little") + text


def play(emit, folder, enough):
    """Again and again, so that there are rates."""
    odd = folder / "odd.jsonl.zst"
    odd.write_bytes(zstd_frame(ODD))
    while not enough.is_set():
        subprocess.run([emit, folder / "socket", *PLAYED, odd], check=True, stdout=subprocess.DEVNULL)


def check(prometheus, metrics_port):
    eventually("Prometheus scrapes the sidecar", lambda: not prometheus.values('up{job="spanplane"} == 1'))
    check_targets(prometheus)
    asked = [*expressions.of_dashboard(), *expressions.of_datasources(), *expressions.of_variables()]
    eventually("every panel has something to show", lambda: list(without_answer(prometheus, asked)))
    check_rules(prometheus)
    check_completeness(metrics_port)
    eventually("every attribute stands in a span", lambda: {name for name in expressions.attributes() if not Collector.has(name)})
    alerts = len(list(expressions.of_alerts()))
    print(f"config: Prometheus answers {len(asked)} expressions of dashboard and data sources, and evaluates {alerts} alerts")


def main(spanplane, emit, prometheus):
    metrics_port, prometheus_port = free_ports(2)
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    enough = threading.Event()
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as running:
        folder = pathlib.Path(work)
        (folder / "prometheus.yml").write_text(settings(metrics_port), encoding="utf-8")
        commands = {
            "spanplane": [spanplane, "--socket-path", folder / "socket", "--metrics-address", f"127.0.0.1:{metrics_port}", "--viewer-address", "none"],
            "prometheus": [prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{prometheus_port}"],
        }
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
        for name, command in commands.items():
            log = running.enter_context(open(folder / f"{name}.log", "w", encoding="utf-8"))
            process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            running.callback(process.wait)
            running.callback(process.send_signal, signal.SIGTERM)
        eventually("the socket is there", lambda: not (folder / "socket").exists())
        player = threading.Thread(target=play, args=(emit, folder, enough))
        player.start()
        running.callback(player.join)
        running.callback(enough.set)
        try:
            check(Prometheus(prometheus_port), metrics_port)
        except BaseException:
            print(*((folder / f"{name}.log").read_text(encoding="utf-8")[-2000:] for name in commands), file=sys.stderr)
            raise


if __name__ == "__main__":
    main(*sys.argv[1:])
