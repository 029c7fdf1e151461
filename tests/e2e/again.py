"""Stored calls, made again with the commands that the viewer prints: real functions answer as they did."""

import html
import json
import os
import re
import subprocess
import urllib.parse

from machine import Process, eventually, get, is_free
from servers import BUCKET, PREFIX

# A function of each SDK; only the first has reflection, and knows an older description than what is sent to it.
FUNCTIONS = ("function-auto-ready", "function-pythonic")
SUBJECT = "BucketSet/assets"


def check_calls(stack, ports):
    names = [name for name in FUNCTIONS if stack.peers.has(name, f"stored calls made again to {name}")]
    if not names or not stack.peers.has("grpcurl", "stored calls made again"):
        return
    port = ports.one()
    url = f"http://127.0.0.1:{port}"
    command = [os.environ["SPANPLANE"], "view", "--store", f"s3://{BUCKET}/{PREFIX.rstrip('/')}", "--address", f"127.0.0.1:{port}"]
    viewer = Process(stack.work, "view", command, **stack.sidecar.environment).start()
    eventually("the viewer answers", lambda: get(f"{url}/healthz"), 10)
    for name in names:
        port = ports.one()
        function = Process(stack.work, name, [stack.peers.binary(name), "--insecure", "--address", f"127.0.0.1:{port}"]).start()
        eventually(f"{name} listens", lambda: not is_free(port), 30)
        check_call(stack, f"{url}/trace/{urllib.parse.quote(SUBJECT, safe='')}", name, port)
        function.stop()
    viewer.stop()
    stack.say(f"{' and '.join(names)} answer stored calls as they did")


def check_call(stack, reconcile, name, port):
    """The last step of a reconcile that has this function."""
    steps = re.findall(r'href="/trace/[^"/]+/step/(\d+)">[^<]*</a><span class="function">([^<]*)', get(reconcile))
    place = [place for place, function in steps if function == name][-1]
    page = get(f"{reconcile}/step/{place}")
    printed = html.unescape(re.search(r"data-copy>(curl [^<]*)", page)[1])
    assert "localhost:9443" in printed, printed
    folder = stack.work / f"again-{name}"
    folder.mkdir()
    environment = {**os.environ, "PATH": f"{stack.peers.binary('grpcurl').parent}:{os.environ['PATH']}"}
    commands = printed.replace("localhost:9443", f"127.0.0.1:{port}")
    answer = subprocess.run(["sh", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, (commands, answer.stderr)
    stored = re.search(r"'([^']*)/request&as=call'", printed)[1] + "/response"
    assert json.loads(answer.stdout) == json.loads(get(stored)), (answer.stdout, get(stored))
