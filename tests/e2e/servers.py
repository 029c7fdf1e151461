"""The peers on this machine: how each is started, and when it is there."""

import functools
import json
import pathlib

import boto3
import botocore.config

from machine import Process, eventually, get

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEY, SECRET = "inspector", "inspector-secret"
BUCKET, PREFIX = "payloads", "spanplane/"


class Store:
    """An S3 server; the sidecar and the suite speak to it as anybody would."""

    def __init__(self, process, port, health):
        self.process, self.health = process, health
        self.url = f"http://127.0.0.1:{port}"

    def start(self):
        self.process.start()
        eventually(f"{self.process.name} answers", lambda: get(self.url + self.health, 2) is not None)

    def stop(self):
        self.process.stop()

    @functools.cached_property
    def client(self):
        patient = botocore.config.Config(retries={"max_attempts": 10, "mode": "standard"})
        return boto3.client("s3", endpoint_url=self.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1", config=patient)

    def objects(self, folder):
        """Keys under a folder of the sidecar's, with what they hold, as it is stored."""
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX + folder):
            for entry in page.get("Contents", []):
                found = self.client.get_object(Bucket=BUCKET, Key=entry["Key"])
                yield entry["Key"].removeprefix(PREFIX), found, found["Body"].read()


def minio(work, peers, ports):
    port, folder = ports.one(), work / "minio"
    folder.mkdir()
    addresses = ["--address", f"127.0.0.1:{port}", "--console-address", f"127.0.0.1:{ports.one()}"]
    process = Process(work, "minio", [peers.binary("minio"), "server", *addresses, folder], MINIO_ROOT_USER=KEY, MINIO_ROOT_PASSWORD=SECRET, MINIO_UPDATE="off")
    return Store(process, port, "/minio/health/live")


def seaweedfs(work, peers, ports):
    port, folder = ports.one(), work / "seaweedfs"
    folder.mkdir()
    identity = {"name": KEY, "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin", "Read", "Write", "List"]}
    (work / "s3.json").write_text(json.dumps({"identities": [identity]}))
    # Each has a second port for gRPC, 10,000 higher unless told.
    inner = [f"-{part}.port{kind}={ports.one()}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")]
    command = [peers.binary("weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *inner]
    command += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=60", "-filer"]
    command += ["-s3", f"-s3.port={port}", f"-s3.port.grpc={ports.one()}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={work / 's3.json'}"]
    return Store(Process(work, "seaweedfs", command), port, "/healthz")


class Jaeger:
    def __init__(self, work, peers, ports, name="jaeger"):
        self.otlp, query = ports.one(), ports.one()
        self.url = f"http://127.0.0.1:{query}"
        command = [peers.binary("jaeger"), "--config", HERE / "config/jaeger.yaml"]
        links = ROOT / "config/jaeger/ui.json"
        self.process = Process(work, name, command, OTLP_PORT=self.otlp, QUERY_PORT=query, QUERY_GRPC_PORT=ports.one(), JAEGER_UI=links, OTEL_TRACES_SAMPLER="always_off")

    def start(self):
        self.process.start()
        eventually("Jaeger answers", lambda: "data" in get(f"{self.url}/api/services"))


class Tempo:
    def __init__(self, work, peers, ports):
        self.otlp, query = ports.one(), ports.one()
        self.url = f"http://127.0.0.1:{query}"
        command = [peers.binary("tempo"), "-config.expand-env=true", f"-config.file={HERE / 'config/tempo.yaml'}"]
        self.process = Process(work, "tempo", command, OTLP_PORT=self.otlp, QUERY_PORT=query, QUERY_GRPC_PORT=ports.one(), GOSSIP_PORT=ports.one(), FOLDER=work / "tempo")

    def start(self):
        self.process.start()
        eventually("Tempo is ready", lambda: "ready" in get(f"{self.url}/ready"))


class Collector:
    """Runs files of `config/collector` as they are, with what the suite adds."""

    def __init__(self, work, peers, ports, shipped, added, name="collector", **environment):
        self.grpc, self.http = ports.one(), ports.one()
        self.folder = work / name
        self.folder.mkdir()
        files = [ROOT / "config/collector" / f"{each}.yaml" for each in shipped] + [HERE / "config" / f"{each}.yaml" for each in added]
        command = [peers.binary("otelcol-peers"), *(word for file in files for word in ("--config", file))]
        listen = {"OTLP_GRPC_LISTEN": f"127.0.0.1:{self.grpc}", "OTLP_HTTP_LISTEN": f"127.0.0.1:{self.http}"}
        self.process = Process(work, name, command, COLLECTED=self.folder, **listen, **environment)

    def start(self):
        self.process.start()

    def stop(self):
        self.process.stop()

    def collected(self, signal):
        """Batches that it wrote to its files."""
        with open(self.folder / f"{signal}.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def spans(self, signal="traces"):
        scopes = (scope for batch in self.collected(signal) for resource in batch["resourceSpans"] for scope in resource["scopeSpans"])
        return [span for scope in scopes for span in scope["spans"]]
