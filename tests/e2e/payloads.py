"""Payloads that spans point to: that each link opens, and holds what its hash says."""

import functools
import hashlib
import json
import re
import urllib.parse

from servers import BUCKET, PREFIX, ROOT
from stack import tags_of

BLANKS = re.compile(r"[ \t\r\n]*")
LINK_PATTERNS = json.loads((ROOT / "config/jaeger/ui.json").read_text())["linkPatterns"]


def payload_events(span):
    events = (tags_of(log, "fields") for log in span["logs"])
    return [event for event in events if "crossplane.payload.key" in event]


def raw_value(text, pointer):
    """The value at a JSON pointer exactly as it stands in the text."""
    decoder, at = json.JSONDecoder(), 0
    blank = lambda at: BLANKS.match(text, at).end()
    for name in pointer.split("/")[1:]:
        is_list, place, at = text[at] == "[", 0, blank(at + 1)
        while True:
            key = place
            if not is_list:
                key, at = json.decoder.scanstring(text, at + 1)
                at = blank(blank(at) + 1)
            if str(key) == name:
                break
            at = blank(decoder.raw_decode(text, at)[1])
            assert text[at] == ",", f"{pointer} is not there"
            place, at = place + 1, blank(at + 1)
    return text[at:decoder.raw_decode(text, at)[1]]


def jaeger_links(fields, kind):
    """The links that Jaeger's page makes of a span's or an event's fields: `computeLinks` of its `link-patterns.ts`, in short.
    Values are encoded, and a pattern that misses one makes no link."""
    for pattern in LINK_PATTERNS:
        names = re.findall(r"#\{([^{}]*)\}", pattern["url"] + pattern["text"])
        if kind in pattern["type"] and pattern["key"] in fields and all(name in fields for name in names):
            yield re.sub(r"#\{([^{}]*)\}", lambda found: urllib.parse.quote(str(fields[found[1]]), safe="!'()*~"), pattern["url"])


def query_of(url):
    parts = urllib.parse.urlsplit(url)
    return parts.path, dict(urllib.parse.parse_qsl(parts.query))


class Payloads:
    """Opened once each."""

    def __init__(self, stack):
        self.document = functools.lru_cache(maxsize=None)(stack.document)
        self.opened, self.states = 0, set()

    def check(self, span):
        for event in payload_events(span):
            key, pointer = event["crossplane.payload.key"], event["crossplane.payload.pointer"]
            value = raw_value(self.document(key), pointer).encode()
            assert len(value) == event["crossplane.payload.size"], event
            assert hashlib.sha256(value).hexdigest() == event["crossplane.payload.sha256"], event
            assert event["crossplane.payload.uri"] == f"s3://{BUCKET}/{PREFIX}{key}", event
            assert event["crossplane.payload.url"].endswith(f"/open?key={key}&pointer={pointer}"), event
            for kind in ("events", "logs"):
                [link] = jaeger_links(event, kind)
                assert query_of(link) == ("/open", {"key": key, "pointer": pointer}), link
            self.states.add(event["crossplane.payload.state"])
            self.opened += 1

    def check_root(self, root):
        tags = tags_of(root)
        for kind in ("attributes", "tags"):
            [link] = jaeger_links(tags, kind)
            assert query_of(link) == ("/open", {"key": tags["crossplane.object.key"]}), link
        assert json.loads(self.document(tags["crossplane.object.key"]))["v"] == 1, tags
