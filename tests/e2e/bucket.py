"""What is in the bucket: documents in shape, secrets gone, and a lifecycle rule for every key."""

import base64
import collections
import json
import re

from servers import BUCKET, PREFIX, ROOT
from stack import unpacked

# What the rules of redaction cover; see the captures' README for where each one stands.
COVERED = {"stringdata", "data", "object-stringdata", "object-data", "required-lastapplied", "credentials", "mr-connection", "xr-connection",
           "mr-spec", "xr-spec", "xr-status", "context", "input"}


def check_bucket(stack):
    kinds, everything = collections.Counter(), []
    for key, found, body in stack.store.objects("v1/reconciles/"):
        assert found["ContentType"] == "application/json" and found["ContentEncoding"] == "zstd", found
        text = unpacked(body).decode()
        document = json.loads(text)
        assert found["Metadata"]["trace_id"] == document["trace_id"], key
        assert document["v"] == 1 and document["trace_id"] in key, key
        kinds[document["subject"]["kind"]] += 1
        everything.append(text)
        for step in document["steps"]:
            request, response = step.get("request"), step.get("response")
            if request and response and "meta" in request and "meta" in response:
                assert request["meta"]["tag"] == response["meta"]["tag"], key
    # What is shown of a payload in a span or a line went the same way as the payload.
    if stack.collector:
        everything.append(json.dumps(stack.collector.collected("traces")))
    everything += [unpacked(body).decode() for _, _, body in stack.store.objects("v1/index/")]
    check_secrets("".join(everything))
    stack.say(f"{sum(kinds.values())} objects: {dict(kinds)}")


def check_secrets(text):
    assert "canary-s3cr3t-1-" in text, "no canary was played"
    for name in re.findall(r"canary-s3cr3t-1-([a-z-]+)", text):
        assert name not in COVERED, f"{name} got out"
    for name in COVERED:
        assert base64.b64encode(f"canary-s3cr3t-1-{name}".encode()).decode() not in text, name


def apply_lifecycle(stack):
    """The shipped rule is taken, and given back as it is."""
    shipped = json.loads((ROOT / "config/bucket-lifecycle.json").read_text())
    client = stack.store.client
    client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=shipped)
    rules = client.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    by_id = lambda rules: sorted(rules, key=lambda rule: rule["ID"])
    assert by_id(rules) == by_id(shipped["Rules"]), rules


def check_lifecycle(stack):
    """Each rule has keys to expire, and only the check that is written at each start has none."""
    rules = {rule["Filter"]["Prefix"]: 0 for rule in json.loads((ROOT / "config/bucket-lifecycle.json").read_text())["Rules"]}
    for key, _, _ in stack.store.objects(""):
        matching = [prefix for prefix in rules if (PREFIX + key).startswith(prefix)]
        assert len(matching) == 1 or key == "v1/check.json", key
        for prefix in matching:
            rules[prefix] += 1
    assert all(rules.values()), rules
