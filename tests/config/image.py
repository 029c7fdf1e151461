"""The image without a container engine: what its Dockerfile copies and runs, done in a folder, for both platforms.

The programs have to need nothing but the C library of the image they are put on. The one for this machine plays the
demo and serves, as the image's user, with nothing around it but the program and that library, from Debian's package.
"""

import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv

ROOT = pathlib.Path(__file__).parents[2]
DOCKERFILE = ROOT / "config/Dockerfile"
MACHINES = {"amd64": ("x86_64", 0x3E), "arm64": ("aarch64", 0xB7)}


def instructions():
    """Stage, instruction and arguments, with lines that belong together joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    stage = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            if word == "FROM":
                stage = rest.split(" AS ")[1] if " AS " in rest else "image"
            yield stage, word, rest


def check_context():
    """What is copied is not ignored."""
    ignored = (ROOT / "config/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {path for stage, word, rest in instructions() if word == "COPY" and "--from" not in rest for path in rest.split()[:-1]}
    assert copied == kept, f"copied or kept, but not both: {copied ^ kept}"
    assert all((ROOT / path).exists() for path in copied), copied
    (user,) = [rest for stage, word, rest in instructions() if stage == "image" and word == "USER"]
    assert user == "65532:65532", user


def check_stubs():
    """Cargo refuses a manifest that names a target without a file: each has a stub, also those that are not built."""
    copies, stubs = [], None
    for stage, word, rest in instructions():
        if stage == "build" and word == "COPY":
            copies.append(rest)
        if stage == "build" and word == "RUN" and "src/main.rs" in rest:
            stubs = rest.partition("&& cargo")[0]
            break
    assert stubs, "the Dockerfile makes no stubs"
    with tempfile.TemporaryDirectory() as folder:
        for rest in copies:
            copy(rest, pathlib.Path(folder))
        subprocess.run(["bash", "-euo", "pipefail", "-c", stubs], cwd=folder, check=True)
        command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
        said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    (package,) = json.loads(said)["packages"]
    found = {(kind, target["name"]) for target in package["targets"] for kind in target["kind"]}
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    named = {(kind, target["name"]) for kind in ("bin", "bench", "example", "test") for target in manifest.get(kind, [])}
    assert named <= found, f"the Dockerfile makes no stub for {named - found}"


def copy(rest, work):
    """What a COPY does."""
    *sources, target = rest.split()
    for source in sources:
        place = work / target / (source if target == "./" else "")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, place)


def compilers(tools):
    """The Python packages that the Dockerfile installs, in its versions."""
    (install,) = [rest for _, word, rest in instructions() if word == "RUN" and "pip install" in rest]
    packages = re.findall(r"\S+==\S+", install)
    folder = tools / "-".join(["image", *packages])
    if not folder.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", *packages], check=True)
    subprocess.run(["bash", "-c", re.search(r"rustup target add [^&]+", install)[0]], check=True)
    return folder / "bin"


def build(tools, architecture):
    """The stage `build` from its WORKDIR on; what an earlier run compiled is still there."""
    work = tools / f"image-{architecture}"
    work.mkdir(exist_ok=True)
    for made in ("src", "benches", "tests", "program"):
        shutil.rmtree(work / made, ignore_errors=True)
    variables = {**os.environ, "TARGETARCH": architecture, "PATH": f"{compilers(tools)}:{os.environ['PATH']}"}
    variables.pop("CARGO_TARGET_DIR", None)
    started = False
    for stage, word, rest in instructions():
        started = started or word == "WORKDIR"
        if not started or stage != "build":
            continue
        if word == "COPY":
            copy(rest, work)
        if word == "RUN":
            subprocess.run(["bash", "-euo", "pipefail", "-c", rest], cwd=work, env=variables, check=True)
    return work / "program/spanplane"


def check_libraries(program, machine):
    """By its header: for that machine, and with no library but those that are one with the C library."""
    head = program.read_bytes()[:20]
    assert head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == machine, f"{program} is for another machine"
    said = subprocess.run(["readelf", "--dynamic", program], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", said))
    others = {name for name in needed if not re.match(r"lib(c|m|dl|pthread|rt|util)\.so|ld-linux-", name)}
    assert needed and not others, f"{program} needs {others or 'no library at all'}"


def put_on_base(tools, program):
    """What the image holds, as far as the program can tell."""
    image = tools / "image-root"
    shutil.rmtree(image, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "--quiet=2", "download", "libc6"], cwd=folder, check=True)
        (package,) = pathlib.Path(folder).glob("*.deb")
        subprocess.run(["dpkg", "--extract", package, image], check=True)
    certificates = pathlib.Path("etc/ssl/certs/ca-certificates.crt")
    for path in ("usr/local/bin", certificates.parent, "tmp"):
        (image / path).mkdir(parents=True, exist_ok=True)
    (image / "tmp").chmod(0o1777)
    shutil.copy(pathlib.Path("/") / certificates, image / certificates)
    shutil.copy(program, image / "usr/local/bin")
    return image


def inside(image, *command):
    """As the image's user, in the image's root."""
    (entry,) = [rest for stage, word, rest in instructions() if stage == "image" and word == "ENTRYPOINT"]
    program = shlex.split(entry.strip("[]").replace(",", " "))
    return [shutil.which("chroot"), "--userspec=65532:65532", image, *program, *command]


def check_runs(image):
    demo = subprocess.run(inside(image, "demo"), env={}, check=True, capture_output=True, text=True).stdout
    print("config: in the image:", demo.splitlines()[0])
    # The volume that the chart mounts is all that it writes to.
    volume = image / "var/run/pipeline-inspector"
    volume.mkdir(parents=True)
    os.chown(volume, 65532, 65532)
    before = {path for path in image.rglob("*") if volume not in path.parents}
    process = subprocess.Popen(inside(image, "--metrics-address", "127.0.0.1:0", "--viewer-address", "none"), env={}, stderr=subprocess.DEVNULL)
    try:
        while not (volume / "socket").exists():
            assert process.poll() is None, "it ended"
            time.sleep(0.1)
    finally:
        process.terminate()
        assert process.wait() == 0, process.returncode
    assert {path for path in image.rglob("*") if volume not in path.parents} == before


def main(tools):
    check_context()
    check_stubs()
    if not tools:
        return
    for architecture, (name, machine) in MACHINES.items():
        program = build(pathlib.Path(tools), architecture)
        check_libraries(program, machine)
        print(f"config: the image for {architecture} has a program of {program.stat().st_size / 2**20:.1f} MiB")
        if platform.machine() == name and os.getuid() == 0:
            check_runs(put_on_base(pathlib.Path(tools), program))
    if os.getuid() != 0:
        print("config: LEFT OUT: running the program in the image's root, since chroot needs root")


if __name__ == "__main__":
    main(*sys.argv[1:])
