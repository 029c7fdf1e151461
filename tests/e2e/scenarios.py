"""What the scenarios are to show: one row a subject, with its pipeline, how that ends, and what is told on the way."""

import dataclasses
import fnmatch

PYTHONIC, LAB, READY = "function-pythonic", "function-lab", "function-auto-ready"


@dataclasses.dataclass(frozen=True)
class Subject:
    scenario: str
    kind: str
    # A pattern, since core names what it makes itself.
    name: str
    composition: str
    # The steps that run, each with its function, in order.
    steps: tuple
    # How the last of them fails: error.type, and words of its message.
    failure: tuple = ()
    # What is dropped, by which step; "" if no step had asked for it.
    drops: frozenset = frozenset()
    # Words that results have to say, by step.
    results: tuple = ()
    # Attributes of a step that at least one trace has.
    shows: tuple = ()

    @property
    def root_name(self):
        return "operation" if self.kind == "Operation" else f"reconcile {self.composition}".strip()


def broken(kind, name, step, function, *failure):
    """The scenario's pipelines begin with one step and would end with another."""
    ends = () if failure else (("auto-ready", READY),)
    return Subject("broken", kind, name, kind.lower(), (("base", PYTHONIC), (step, function), *ends), failure)


def operation(name, *steps, failure=(), results=()):
    return Subject("operation", "Operation", name, "", tuple((step, LAB) for step in steps), failure, results=results)


SUBJECTS = (
    Subject(
        "network", "Network", "prod-net", "network-aws",
        (("compose-vpc", PYTHONIC), ("compose-subnets", PYTHONIC), ("compose-routing", PYTHONIC), ("auto-ready", READY)),
        drops=frozenset({("", "subnet-public-b")}),
        results=(("compose-subnets", "planned 8 subnets"), ("compose-routing", "more than 7 subnets in one VPC")),
        shows=(("compose-routing", "crossplane.conditions", "RoutingReady=true(Planned)"),),
    ),
    Subject(
        "dropper", "BucketSet", "assets", "bucketset",
        (("create", PYTHONIC), ("tidy", LAB), ("label", PYTHONIC), ("auto-ready", READY)),
        drops=frozenset({("tidy", "bucket-b")}),
        results=(("tidy", "dropped bucket-b"),),
        shows=(("tidy", "crossplane.desired.removed.names", "bucket-b"), ("create", "crossplane.desired.added.names", "bucket-a")),
    ),
    Subject(
        "requirements", "Lookup", "finder", "lookup",
        (("dynamic", LAB), ("legacy", PYTHONIC), ("bootstrap", LAB), ("auto-ready", READY)),
        results=(("dynamic", "call 2 saw"),),
        shows=(("dynamic", "crossplane.requirements", "by-name=ConfigMap"), ("legacy", "crossplane.requirements", "none=ConfigMap")),
    ),
    Subject(
        "secrets", "Login", "app-login", "login",
        (("compose", PYTHONIC), ("inspect", LAB), ("auto-ready", READY)),
        results=(("compose", "logged in with"),),
        shows=(("compose", "crossplane.conditions", "Authenticated=true(Token)"),),
    ),
    Subject("steady", "Calm", "calm-*", "calm", (("widgets", PYTHONIC), ("decorate", PYTHONIC), ("auto-ready", READY))),
    operation("rotate-keys", "rotate", "report", results=(("rotate", "rotated 2 keys"),)),
    operation("fails", "boom", failure=("fatal", "vault sealed"), results=(("boom", "vault sealed"),)),
    operation("errors", "abort", failure=("permission_denied", "not allowed")),
    operation("nightly-*", "tick"),
    operation("on-config-*", "react"),
    broken("Fatal", "fatal-ok", "validate", PYTHONIC),
    broken("Fatal", "fatal-bad", "validate", PYTHONIC, "fatal", "policy net-17"),
    broken("Raiser", "raiser", "explode", PYTHONIC, "fatal", "exploded on purpose"),
    broken("GrpcError", "grpc-abort", "abort", LAB, "invalid_argument", 'field "size" must be > 0'),
    broken("GrpcError", "grpc-unhandled", "abort", LAB, "unknown", "unhandled in function-lab"),
    broken("GrpcError", "grpc-deadline", "abort", LAB, "deadline_exceeded", "upstream too slow"),
    broken("GrpcError", "grpc-unavailable", "abort", LAB, "unavailable", "try later"),
    broken("GrpcError", "grpc-toolarge", "abort", LAB, "resource_exhausted", "larger than max"),
    broken("GrpcError", "grpc-unstable", "abort", LAB, "requirements_unstable", "didn't stabilize"),
    broken("GrpcError", "grpc-badrequirement", "abort", LAB, "required_resources", "fetching resources for r"),
    broken("GrpcError", "grpc-invalid", "abort", LAB),
    broken("Unreachable", "unreachable", "call-dead", "function-dead", "no_response", "no response"),
    broken("Missing", "missing", "call-missing", "function-that-is-not-installed", "no_connection", "cannot get gRPC client connection"),
    broken("Hanger", "hanger", "sleep", LAB, "no_response", "no response"),
    broken("Hanger", "slow", "sleep", LAB),
    Subject("load", "Shipped", "xr-*", "load-shipped", tuple((f"step-{index}", "function-load") for index in range(20))),
    # This layout has no names for steps.
    Subject("load", "Draft", "xr-*", "load-draft", tuple(("function-load", "function-load") for _ in range(20))),
    # Half a step: nobody types the response.
    Subject("by hand", "ByHand", "one", "", (("typed", ""),), ("no_response", "no response")),
)


def subject_of(kind, name):
    [found] = [each for each in SUBJECTS if each.kind == kind and fnmatch.fnmatch(name, each.name)]
    return found


def subjects(scenarios):
    return [each for each in SUBJECTS if each.scenario in scenarios]
