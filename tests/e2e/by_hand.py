"""grpcurl finds the service and its messages by reflection, and calls it by name."""

import base64
import json
import subprocess

from load import SERVICE


def send_by_hand(stack):
    """Half a step: what was typed gets no response."""
    call = [stack.peers.binary("grpcurl"), "-plaintext", "-unix"]
    listed = subprocess.check_output([*call, stack.socket, "list"], text=True, timeout=30)
    assert SERVICE in listed, listed
    meta = {"trace_id": "by-hand", "span_id": "1", "step_name": "typed", "composition_meta": {"composite_resource_kind": "ByHand", "composite_resource_name": "one"}}
    message = {"request": base64.b64encode(b'{"typed":"by hand"}').decode(), "meta": meta}
    answer = subprocess.check_output([*call, "-d", json.dumps(message), stack.socket, f"{SERVICE}/EmitRequest"], text=True, timeout=30)
    assert json.loads(answer) == {}, answer
