"""Thousands of calls by grpc-go's own client, 16 at a time, in both layouts of StepMeta."""

import base64
import datetime
import json
import subprocess

from machine import eventually
from servers import ROOT

SERVICE = "crossplane.pipeline.v1alpha1.PipelineInspectorService"
XRS, STEPS, AT_ONCE = 100, 20, 16
# A request and a response a step, in two layouts.
MESSAGES = XRS * STEPS * 2 * 2


def draft_proto(folder):
    """The shipped service, with the first published layout in its messages."""
    shipped = (ROOT / "proto/crossplane/pipeline/v1alpha1/pipeline.proto").read_text()
    draft = shipped.replace("StepMeta meta", "spanplane.draft.StepMeta meta")
    path = folder / "draft.proto"
    path.write_text(draft.replace('import "google', 'import "spanplane/draft/step_meta.proto";\nimport "google', 1))
    return path


def meta_of(layout, xr, step, timestamp):
    subject = {
        "composition_name": f"load-{layout}", "composite_resource_uid": f"{layout}-{xr}", "composite_resource_name": f"xr-{xr}",
        "composite_resource_namespace": "default", "composite_resource_api_version": "load.example.org/v1", "composite_resource_kind": layout.title(),
    }
    meta = {"trace_id": f"{layout}-trace-{xr}", "span_id": f"{layout}-{xr}-{step}", "step_index": step, "function_name": "function-load", "timestamp": timestamp}
    return {**meta, **subject} if layout == "draft" else {**meta, "step_name": f"step-{step}", "composition_meta": subject}


def messages(layout, payload, timestamp):
    body = lambda xr, step: base64.b64encode(json.dumps({"meta": {"tag": f"{xr}-{step}"}}).encode()).decode()
    return [{payload: body(xr, step), "meta": meta_of(layout, xr, step, timestamp)} for xr in range(XRS) for step in range(STEPS)]


def send(stack, layout, call, payload, timestamp):
    """All are to be answered well."""
    data = stack.work / f"{layout}-{payload}.json"
    data.write_text(json.dumps(messages(layout, payload, timestamp)))
    protos = ["--proto", draft_proto(stack.work), "-i", ROOT / "proto"] if layout == "draft" else []
    command = [stack.peers.binary("ghz"), "--insecure", *protos, "--call", f"{SERVICE}.{call}", "-D", data]
    command += ["-c", str(AT_ONCE), "-n", str(XRS * STEPS), "-O", "json", f"unix://{stack.socket}"]
    told = json.loads(subprocess.check_output(command, text=True, timeout=120))
    assert told["statusCodeDistribution"] == {"OK": XRS * STEPS}, told["statusCodeDistribution"]
    return told


def check_load(stack):
    """The trees of what is sent here stand in the table of scenarios."""
    messages_before, objects_before = stack.metric("messages_acknowledged_total"), stack.metric("objects_stored_total")
    for layout in ("shipped", "draft"):
        timestamp = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        for call, payload in (("EmitRequest", "request"), ("EmitResponse", "response")):
            told = send(stack, layout, call, payload, timestamp)
            slowest = max(told["details"], key=lambda each: each["latency"])["latency"]
            stack.say(f"ghz: {told['count']} {call} in the {layout} layout, {told['rps']:.0f} a second, mean {told['average'] / 1e6:.1f} ms, slowest {slowest / 1e6:.1f} ms")
    assert stack.metric("messages_acknowledged_total") - messages_before >= MESSAGES
    eventually("an object of each XR is stored", lambda: stack.metric("objects_stored_total") - objects_before >= 2 * XRS, 120)
    stack.say(f"{MESSAGES} messages of {2 * XRS} XRs are acknowledged and stored")
