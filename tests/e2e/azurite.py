"""A sidecar that writes to Azurite: what is acknowledged arrives, and a container that is missing is told as such until somebody makes it."""

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import azure.storage.blob
import zstandard

from machine import Ports, Process, eventually, get, readiness

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CAPTURES = [ROOT / f"tests/fixtures/captures/{name}.jsonl.zst" for name in ("network", "dropper", "requirements", "broken", "steady-start", "steady-idle")]
# Azurite's own, known to everybody.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER, PREFIX = "payloads", "spanplane/"


def say(text):
    print(f"e2e/azure: {text}", flush=True)


def unpacked(body):
    return zstandard.ZstdDecompressor().stream_reader(body).read()


def payloads_in_captures():
    """How many messages of the captures hold a payload, which is the first field of each."""
    lines = (line for path in CAPTURES for line in unpacked(path.read_bytes()).splitlines())
    return sum(base64.b64decode(json.loads(line)["raw_b64"]).startswith(b"\x0a") for line in lines)


class Sidecar:
    def __init__(self, work, name, endpoint, key=KEY):
        ports, self.folder = Ports(), work / name
        self.folder.mkdir()
        self.url = f"http://127.0.0.1:{ports.one()}"
        self.variables = {
            "SPANPLANE_STORE": f"az://{CONTAINER}/{PREFIX}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": key,
            "AZURE_STORAGE_ENDPOINT": endpoint,
            # As in the Helm values, the data directory is beside the socket, and nothing else names it.
            "PIPELINE_INSPECTOR_SOCKET": self.folder / "socket",
        }
        served = ["--metrics-address", self.url.removeprefix("http://"), "--viewer-address", "none", "--shutdown-timeout", "60s"]
        command = [os.environ["SPANPLANE"], *served]
        self.process = Process(work, name, command, **self.variables).start()
        eventually("the sidecar answers", lambda: get(self.url + "/healthz", 2))

    def emit(self):
        subprocess.run([os.environ["EMIT"], "--deadline", "30s", self.folder / "socket", *CAPTURES], check=True, stdout=subprocess.DEVNULL)

    def metric(self, name):
        """The sum over all labels."""
        lines = get(self.url + "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"spanplane_{name} ", f"spanplane_{name}{{")))

    def ask(self, *question):
        environment = {**os.environ, **{name: str(value) for name, value in self.variables.items()}}
        return subprocess.run([os.environ["SPANPLANE"], *question], env=environment, capture_output=True, text=True)

    def stop(self):
        self.process.stop()
        return self.process.log.read_text()


def check_stored(container, sidecar, expected):
    """Every payload that the index names is there, with its hash, and there are as many as were acknowledged."""
    lines = {}
    for blob in container.list_blobs(name_starts_with=PREFIX + "v1/index/"):
        for line in unpacked(container.download_blob(blob.name).readall()).splitlines():
            line = json.loads(line)
            lines[line["trace_id"]] = line
    documents, found = {}, 0
    for line in lines.values():
        key = line["object"]["key"]
        if key not in documents:
            blob = container.get_blob_client(PREFIX + key)
            properties = blob.get_blob_properties()
            text = unpacked(blob.download_blob().readall()).decode()
            documents[key] = text
            assert properties.metadata == {"trace_id": json.loads(text)["trace_id"]}, properties
            settings = properties.content_settings
            assert (settings.content_type, settings.content_encoding) == ("application/json", "zstd"), settings
        for step in line["steps"]:
            for kind in ("request", "response"):
                if payload := step[kind]:
                    value = raw_value(documents[key], payload["pointer"]).encode()
                    assert hashlib.sha256(value).hexdigest() == payload["sha256"], (key, payload)
                    found += 1
    assert found == expected, f"{found} of {expected} payloads arrived"
    listed = sidecar.ask("ls", "--limit", "0", "-o", "json")
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == len(lines), listed
    say(f"{found} payloads of {len(lines)} reconciles arrived in {len(documents)} objects")


def raw_value(text, pointer):
    """The value at a pointer such as /steps/0/request exactly as it is in the text."""
    decoder, at = json.JSONDecoder(), 0
    skip = lambda at: at + len(text[at:]) - len(text[at:].lstrip(" \t\r\n"))
    for name in pointer.split("/")[1:]:
        is_list, place, at = text[at] == "[", 0, skip(at + 1)
        while True:
            key = place
            if not is_list:
                key, at = json.decoder.scanstring(text, at + 1)
                at = skip(skip(at) + 1)
            if str(key) == name:
                break
            place, at = place + 1, skip(skip(decoder.raw_decode(text, at)[1]) + 1)
    return text[at:decoder.raw_decode(text, at)[1]]


def main(work):
    port = Ports().one()
    azurite = [os.environ["AZURITE"], "--blobHost", "127.0.0.1", "--blobPort", port, "--skipApiVersionCheck", "--inMemoryPersistence"]
    Process(work, "azurite", azurite).start()
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    service = azure.storage.blob.BlobServiceClient(endpoint, credential=KEY)
    eventually("Azurite answers", lambda: list(service.list_containers()) == [])
    container = service.get_container_client(CONTAINER)

    # Nobody has made the container yet.
    sidecar = Sidecar(work, "sidecar", endpoint)
    sidecar.emit()
    expected = payloads_in_captures()
    eventually("the refusal is told", lambda: sidecar.metric("store_refused") == 1)
    code, text = readiness(sidecar.url)
    assert code == 503 and "store refused (bucket_missing)" in text and "create the bucket" in text, text
    health = sidecar.ask("health")
    assert "✗  writing to the store" in health.stdout and "refused since" in health.stdout, health
    container.create_container()
    eventually("what waited is stored", lambda: sidecar.metric("outbox_bytes") == 0 and sidecar.metric("spool_oldest_record_age_seconds") == 0, 300)
    code, text = readiness(sidecar.url)
    assert code == 200, text
    log = sidecar.stop()
    assert "the bucket does not exist" in log and "the store can be written to" in log, log
    check_stored(container, sidecar, expected)

    # A check that is there already stays as it is, and counts as one that was written.
    checks = lambda: [(blob.name, blob.etag) for blob in container.list_blobs(name_starts_with=PREFIX + "v1/check")]
    before = checks()
    again = Sidecar(work, "again", endpoint)
    eventually("the store is checked", lambda: "the store can be written to" in again.process.log.read_text())
    again.stop()
    assert checks() == before and len(before) == 1, checks()

    stranger = Sidecar(work, "stranger", endpoint, key=base64.b64encode(b"another key").decode())
    eventually("the refusal is told", lambda: stranger.metric("store_refused") == 1)
    code, text = readiness(stranger.url)
    assert code == 503 and "store refused (not_authenticated)" in text, text
    stranger.stop()
    say("a missing container and a wrong key are told as such, and a check that is there is left alone")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        try:
            main(pathlib.Path(folder))
        except BaseException:
            for log in pathlib.Path(folder).glob("*.log"):
                print(f"== {log.name}", *log.read_text().splitlines()[-20:], sep="\n", file=sys.stderr)
            raise
        finally:
            for process in list(Process.running):
                process.stop()
