"""Probes of programs and Debian packages: each is run, in a scratch folder if it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from controller.apps.cli.doctor.values import Finding, Purpose

_PATIENCE_S: Final = 60.0
PODMAN: Final = Purpose(
    "podman", "pods (`runtime: podman`), tasks in containers", "apt install --no-install-recommends podman"
)
RUNC: Final = Purpose("runc", "pods without podman (`runtime: runc`)", "apt install --no-install-recommends runc")
COMPILER: Final = Purpose("C compiler", "ports of kind DPDK", "apt install gcc")
DPDK: Final = Purpose("DPDK", "ports of kind DPDK", "apt install libdpdk-dev gcc pkg-config")
SLURM: Final = Purpose("Slurm", "compute centres with the engine slurm", "apt install slurm-client, and a cluster")
_RUN: Final = (
    (Purpose("conmon", "pods on runc", "apt install --no-install-recommends conmon"), ("conmon", "--version")),
    (Purpose("skopeo", "images for pods on runc", "apt install skopeo"), ("skopeo", "--version")),
    (Purpose("umoci", "images for pods on runc", "apt install umoci"), ("umoci", "--version")),
    (
        Purpose("Java", "SQL on Apache Spark (`accel run --spark`)", "apt install openjdk-17-jre-headless"),
        ("java", "-version"),
    ),
    (
        Purpose("etcd", "storage of the API server that machines share", "apt install etcd-server"),
        ("etcd", "--version"),
    ),
    (Purpose("tshark", "decoding captures with our dissector", "apt install tshark"), ("tshark", "--version")),
    (
        Purpose("bmv2", "comparisons with bmv2's switch", "docs/start/install.md: packages, a container or source"),
        ("simple_switch_grpc", "--help"),
    ),
    (
        Purpose("p4c", "compiling your own P4 programs", "apt repository of p4lang, or github.com/p4lang/p4c"),
        ("p4c-bm2-ss", "--version"),
    ),
)
"""Programs whose start shows that they work."""
_FAILS: Final = {"sinfo": "run it where the cluster's slurm.conf is"}
"""Remedies for programs that are there and fail, where installing them again is none."""
_SYSTEM: Final = tuple(path for path in ("/bin", "/lib", "/lib64", "/usr") if Path(path).is_dir())
_BOUND: Final = {"type": "bind", "options": ["rbind", "ro"]}


def probe() -> Iterator[Finding]:
    """Yield the findings."""
    with tempfile.TemporaryDirectory(prefix="millrace-doctor-") as name:
        folder = Path(name)
        yield _podman(folder)
        yield runc(folder)
        for purpose, command in _RUN:
            yield started(purpose, command)
        yield _compiler(folder)
        yield _dpdk()
        yield started(SLURM, ("sinfo", "--json"))


def started(purpose: Purpose, command: Sequence[str]) -> Finding:
    """Return whether a program is there and ends with status 0."""
    path = shutil.which(command[0])
    if path is None:
        return purpose.missing(f"no {command[0]} on the PATH")
    problem = _problem(command)
    return purpose.ok(path) if problem is None else purpose.limited(f"{path}: {problem}", _FAILS.get(command[0]))


def _podman(folder: Path) -> Finding:
    path = shutil.which("podman")
    if path is None:
        return PODMAN.missing("no podman on the PATH")
    if os.geteuid() == 0:
        storage = ("--root", str(folder / "podman"), "--runroot", str(folder / "podman-run"))
        problem = _problem(("podman", *storage, "--storage-driver", "vfs", "info"))
    else:
        # Anything more would leave podman's pause process behind.
        problem = _problem(("podman", "--version"))
        if problem is None and shutil.which("newuidmap") is None:
            problem = "containers of users need newuidmap: apt install uidmap"
    return PODMAN.ok(path) if problem is None else PODMAN.limited(f"{path}: {problem}")


def runc(folder: Path) -> Finding:
    """Return whether runc runs a container: this machine's /bin/true."""
    path = shutil.which("runc")
    if path is None:
        return RUNC.missing("no runc on the PATH")
    bundle = folder / "bundle"
    (bundle / "rootfs").mkdir(parents=True)
    problem = _problem(("runc", "spec", *([] if os.geteuid() == 0 else ["--rootless"])), bundle)
    if problem is None:
        file = bundle / "config.json"
        config = json.loads(file.read_bytes())
        # /bin/true needs no control groups, which some machines mount in their own way.
        mounts = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
        config["mounts"] = [*mounts, *({"destination": each, "source": each, **_BOUND} for each in _SYSTEM)]
        config["process"] |= {"args": ["/bin/true"], "terminal": False}
        file.write_text(json.dumps(config), encoding="utf-8")
        problem = _problem(("runc", "--root", str(folder / "runc"), "run", f"millrace-doctor-{os.getpid()}"), bundle)
    if problem is None:
        return RUNC.ok(f"{path} ran a container")
    return RUNC.limited(f"{path}: {problem}", "run as root, outside containers or in a privileged one")


def _compiler(folder: Path) -> Finding:
    path = shutil.which("cc")
    if path is None:
        return COMPILER.missing("no cc on the PATH")
    source = folder / "probe.c"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    problem = _problem(("cc", "-o", "probe", "probe.c"), folder) or _problem(("./probe",), folder)
    return COMPILER.ok(f"{path} compiled a program") if problem is None else COMPILER.limited(f"{path}: {problem}")


def _dpdk() -> Finding:
    if shutil.which("pkg-config") is None:
        return DPDK.missing("no pkg-config on the PATH")
    problem = _problem(("pkg-config", "--exists", "--print-errors", "libdpdk"))
    return DPDK.ok("pkg-config finds libdpdk") if problem is None else DPDK.missing(problem)


def _problem(command: Sequence[str], folder: Path | None = None) -> str | None:
    """Return why a program fails, None if it does not."""
    try:
        done = subprocess.run(  # noqa: S603 - our own list of commands
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` has not ended after {_PATIENCE_S:g} s"
    if done.returncode == 0:
        return None
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"`{' '.join(command)}` ended with status {done.returncode}"
