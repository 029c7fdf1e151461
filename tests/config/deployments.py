"""What runs in a cluster: Crossplane's chart with our values, and a provider with our runtime config."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import yaml
from schema import schema_of, validate

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / "config"
BASE, IDENTITY = CONFIG / "helm-values.yaml", CONFIG / "helm-values-identity.yaml"
RESOURCES = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "128Mi"}}
UNITS = {"Gi": 2**30, "GiB": 2**30, "Mi": 2**20, "MiB": 2**20}


def run(*command):
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"config: {' '.join(command)}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


class Release:
    """The chart with some values, rendered by Helm."""

    def __init__(self, helm, cluster, *values):
        chart = f"{cluster}/charts/crossplane"
        given = [flag for file in values for flag in ("--values", str(file))]
        run(helm, "lint", "--strict", chart, *given)
        rendered = run(helm, "template", "crossplane", chart, "--namespace", "crossplane-system", *given)
        objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(rendered) if each}
        deployment = objects["Deployment", "crossplane"]
        # A runtime config holds the schema of any Deployment.
        runtime_config = schema_of(f"{cluster}/crds", "pkg.crossplane.io_deploymentruntimeconfigs")
        schema = runtime_config["properties"]["spec"]["properties"]["deploymentTemplate"]["properties"]["spec"]
        validate(deployment["spec"], schema, f"the Deployment of {values[-1].name}")
        self.account = objects["ServiceAccount", deployment["spec"]["template"]["spec"]["serviceAccountName"]]["metadata"]
        self.pod = deployment["spec"]["template"]
        containers = {each["name"]: each for each in self.pod["spec"]["containers"]}
        self.core, self.sidecar = containers["crossplane"], containers["spanplane"]


def default_of(program, flag):
    """As the program's help tells it."""
    return re.search(rf"--{flag} .*?\[default: ([^\]]+)\]", run(program, "--help"), re.DOTALL)[1]


def size(text):
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", text).groups()
    return int(number) * UNITS[unit]


def shared_mount(one, other):
    """The volume and the path that two containers both mount."""
    mounts = [{(mount["name"], mount["mountPath"]) for mount in each["volumeMounts"]} for each in (one, other)]
    (shared,) = mounts[0] & mounts[1]
    return shared


def disk_limits(program, environment):
    """What the program takes of the disk at most with these variables, and without the store that they name."""
    for left_out in (None, "SPANPLANE_STORE"):
        with tempfile.TemporaryDirectory() as folder:
            variables = {name: value for name, value in environment.items() if name != left_out}
            variables |= {"PIPELINE_INSPECTOR_SOCKET": f"{folder}/socket", "SPANPLANE_METRICS_ADDRESS": "none"}
            variables |= {"SPANPLANE_VIEWER_ADDRESS": "none", "SPANPLANE_LOG_FORMAT": "json", "SHUTDOWN_TIMEOUT": "10ms"}
            with subprocess.Popen([program], env=variables, stderr=subprocess.PIPE, text=True) as running:
                lines = (json.loads(line) for line in running.stderr)
                yield next(line for line in lines if line["message"] == "listening")
                running.terminate()
                running.communicate()


def check_sizes(program, environment, volume):
    """A pod that takes more than its volume may is evicted, and what was in the volume is gone."""
    most = size(environment["SPANPLANE_DATA_MAX_BYTES"])
    assert most <= volume * 15 // 16, (most, volume)
    with_chart, by_default = list(disk_limits(program, environment)), list(disk_limits(program, {}))
    for limits in with_chart + by_default:
        together = limits["spool_max_bytes"] + limits.get("retention_bytes", 0)
        assert together < volume, (limits, volume)
    for limits in with_chart:
        assert limits["spool_max_bytes"] + limits.get("retention_bytes", 0) >= most * 9 // 10, limits


def check_sidecar(program, release):
    """Crossplane finds it, it can start, and it stays within its limits."""
    socket = default_of(program, "socket-path")
    assert "--enable-pipeline-inspector" in release.core["args"], release.core["args"]
    assert f"--pipeline-inspector-socket={socket}" in release.core["args"], release.core["args"]
    volume, path = shared_mount(release.core, release.sidecar)
    assert str(pathlib.Path(socket).parent) == path, path
    environment = {each["name"]: each["value"] for each in release.sidecar["env"]}
    (folder,) = [each["emptyDir"] for each in release.pod["spec"]["volumes"] if each["name"] == volume]
    check_sizes(program, environment, size(folder["sizeLimit"]))

    with open(ROOT / "Cargo.toml", "rb") as file:
        version = tomllib.load(file)["package"]["version"]
    assert release.sidecar["image"] == f"ghcr.io/spanplane/spanplane:{version}", release.sidecar["image"]
    assert release.sidecar["resources"] == RESOURCES, release.sidecar["resources"]
    security = release.sidecar["securityContext"]
    assert security["readOnlyRootFilesystem"] and security["runAsNonRoot"] and security["capabilities"] == {"drop": ["ALL"]}, security
    for identity in ("runAsUser", "runAsGroup"):
        assert security[identity] == release.core["securityContext"][identity], identity
    (port,) = release.sidecar["ports"]
    assert default_of(program, "metrics-address").endswith(f":{port['containerPort']}"), port
    assert release.sidecar["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}

    # All mistakes are told at once: with one of ours, only that one.
    told = subprocess.run([program, "--socket-path", "/"], env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 2 and re.findall(r"(?<!\w)--[a-z-]+: ", told.stderr) == ["--socket-path: "], told.stderr


def identities():
    """The values for each way of workload identity: the file as it is, without its account, and with each that it names in a comment."""
    text = IDENTITY.read_text(encoding="utf-8")
    yield yaml.safe_load(text)
    without_account = {key: value for key, value in yaml.safe_load(text).items() if key != "serviceAccount"}
    yield without_account
    blocks = re.findall(r"(?:^#   .*\n)+", text, re.MULTILINE)
    named = [yaml.safe_load(re.sub("^#   ", "", block, flags=re.MULTILINE)) for block in blocks if "serviceAccount" in block]
    assert len(named) == 2, named
    for each in named:
        yield without_account | each


def check_identity(helm, cluster, program):
    base = Release(helm, cluster, BASE)
    assert base.sidecar["envFrom"] == [{"secretRef": {"name": "spanplane-s3", "optional": True}}], base.sidecar
    assert "annotations" not in base.account, base.account
    check_sidecar(program, base)
    expected = {key: value for key, value in base.sidecar.items() if key != "envFrom"}
    for values in identities():
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            yaml.safe_dump(values, file)
            file.flush()
            release = Release(helm, cluster, BASE, pathlib.Path(file.name))
        assert release.sidecar == expected, release.sidecar
        assert release.account.get("annotations", {}) == values.get("serviceAccount", {}).get("customAnnotations", {})
        assert values.get("customLabels", {}).items() <= release.pod["metadata"]["labels"].items(), release.pod["metadata"]
    check_sidecar(program, Release(helm, cluster, BASE, IDENTITY))


def check_runtime_config(cluster):
    """A provider that emits change logs, and somebody who takes them, at the same socket."""
    with open(CONFIG / "deployment-runtime-config.yaml", encoding="utf-8") as file:
        config = yaml.safe_load(file)
    assert config["apiVersion"] == "pkg.crossplane.io/v1beta1" and config["kind"] == "DeploymentRuntimeConfig"
    validate(config, schema_of(f"{cluster}/crds", "pkg.crossplane.io_deploymentruntimeconfigs"), "the runtime config")
    pod = config["spec"]["deploymentTemplate"]["spec"]["template"]["spec"]
    provider, sidecar = pod["containers"]
    # The name that Crossplane's package manager merges by.
    assert provider["name"] == "package-runtime" and provider["args"] == ["--enable-changelogs"], provider
    volume, path = shared_mount(provider, sidecar)
    assert [each["name"] for each in pod["volumes"]] == [volume]
    assert sidecar["args"] == [f"--socket-path={path}/changelogs.sock"], sidecar
    assert sidecar["resources"] == RESOURCES, sidecar


if __name__ == "__main__":
    check_identity(*sys.argv[1:])
    check_runtime_config(sys.argv[2])
    print("config: the chart takes the values, with a secret and with four ways of workload identity; the CRD takes the runtime config")
