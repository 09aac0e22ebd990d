"""An all-reduce job as a group of pods: one script, containers, and sums that the switches of a kernel fabric make.

    sudo .venv/bin/python docs/examples/all_reduce_group/run.py

starts everything by `millrace up` (a fabric between namespaces, all daemons, four nodes), applies group.yaml, reads the
workers' logs, compares, deletes the group and stops everything. It needs root, runc and conmon. Its containers have no
image: their root folder is empty, and the machine's own Python and libraries are seen in it, read-only, which the
nodes' settings allow for these folders and no others. It prints (hosts and bits are examples)

    pods of group line run on h1 h2 h3
    step 0: 3 workers, the same bits at all of them: True, largest difference from numpy 5e-07
    step 1: 3 workers, the same bits at all of them: True, largest difference from numpy 5e-07
    step 2: 3 workers, the same bits at all of them: True, largest difference from numpy 5e-07
    torn down: no container, no namespace, no process of it is left
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import yaml

import dataplane

HERE = Path(__file__).resolve().parent
PYTHON = Path(sys.prefix).resolve() / "bin" / "python"
MILLRACE = [sys.executable, "-m", "controller.apps.cli"]
NODES = ("h1", "h2", "h3", "h4")
WAIT_S = 180.0
STEP = re.compile(r"step (\d+) rank \d+ on \S+: bits (\w+), largest difference from numpy (\S+)")


def millrace(folder: Path, *words: str, check: bool = True) -> str:
    """Run a command of ours, and return what it prints."""
    environ = {**os.environ, "MILLRACE_API": f"unix:{folder}/run/api.sock"}
    done = subprocess.run([*MILLRACE, *words], env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    if check and done.returncode:
        raise SystemExit(f"millrace {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def seen_folders() -> list[Path]:
    """Return the machine's folders that a container needs for Python and Millrace."""
    wanted = [sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), str(Path(dataplane.__file__).parents[1])]
    found = {Path(one).resolve() for one in wanted} | {Path("/usr")}
    return sorted(one for one in found if not any(other in one.parents for other in found))


def write_bundle(folder: Path, cache: Path) -> None:
    """Write an OCI bundle whose root folder holds nothing but the places where the machine's folders are mounted."""
    root = folder / "bundle" / "rootfs"
    for place in ("tmp", "proc", "dev", "sys", "etc", "example"):
        (root / place).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    mounts = [(path, path, "ro") for path in seen_folders()]
    mounts += [(HERE, Path("/example"), "ro"), (folder / "run", folder / "run", "ro"), (cache, cache, "rw")]
    for _, target, _ in mounts:
        (root / target.relative_to("/")).mkdir(parents=True, exist_ok=True)
    process = {
        "args": [str(PYTHON)],
        "env": [f"PYTHONPATH={Path(dataplane.__file__).parents[1]}", f"MILLRACE_CACHE_DIR={cache}"],
        "cwd": "/",
    }
    binds = [
        {"type": "bind", "source": str(source), "destination": str(target), "options": ["rbind", how]}
        for source, target, how in mounts
    ]
    config = {"ociVersion": "1.0.2", "process": process, "root": {"path": "rootfs"}, "mounts": binds}
    (root.parent / "config.json").write_text(json.dumps(config), encoding="utf-8")


def free_port() -> int:
    """Return a UDP port of loopback that is free, for telemetry reports: another fabric may run here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def write_settings(folder: Path, cache: Path) -> None:
    """Write the settings of `millrace up`: a quiet kernel fabric, the job service, a node for each host."""
    run = folder / "run"
    allowed = [str(one) for one in (*seen_folders(), HERE, run, cache)]
    runtime = {"kind": "runc", "bundle_folders": [str(folder / "bundle")], "mount_folders": allowed}
    settings = {
        "topology": str(HERE / "topology.yaml"),
        "time": "kernel",
        "run": str(run),
        "fabric": {"peak_utilisation": 0.0},
        "collector": {"udp_port": free_port()},
        "controller": {"jobs": {"listen": f"unix:{run}/jobs.sock", "window": 64}},
        "nodes": {name: {"runtime": runtime} for name in NODES},
    }
    (folder / "state").mkdir(mode=0o700)
    (folder / "state" / "millrace.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def write_script(folder: Path) -> Path:
    """Write group.yaml with this machine's paths."""
    text = (HERE / "group.yaml").read_text(encoding="utf-8")
    file = folder / "group.yaml"
    file.write_text(text.replace("BUNDLE", str(folder / "bundle")).replace("PYTHON", str(PYTHON)), encoding="utf-8")
    return file


def wait_for_logs(folder: Path, pods: list[str]) -> dict[str, str]:
    """Return what the workers have written, once all are done."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        logs = {pod: millrace(folder, "pod", "logs", pod, check=False) for pod in pods}
        if all("done" in log for log in logs.values()):
            return logs
        time.sleep(1.0)
    shown = millrace(folder, "pod", "list", check=False) + millrace(folder, "get", "podgroups", check=False)
    raise SystemExit(f"the workers are not done after {WAIT_S:.0f} s:\n{shown}\n{logs}")


def report(logs: dict[str, str]) -> bool:
    """Print what came of each step; return whether all workers have the same bits, near numpy's sums."""
    steps: defaultdict[int, list[tuple[str, float]]] = defaultdict(list)
    for log in logs.values():
        for step, bits, error in STEP.findall(log):
            steps[int(step)].append((bits, float(error)))
    fine = len(steps) == 3
    for step, found in sorted(steps.items()):
        same, error = len({bits for bits, _ in found}) == 1, max(error for _, error in found)
        print(f"step {step}: {len(found)} workers, the same bits at all of them: {same}, ", end="")
        print(f"largest difference from numpy {error:.0e}", flush=True)
        fine = fine and same and len(found) == len(logs) and error < 1e-5
    return fine


def commands() -> Iterator[str]:
    """Yield each process's command line."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def left_behind(folder: Path, namespaces: list[Path]) -> list[str]:
    """Return processes, mounts and namespaces that are still of this folder, once they had time to go."""
    end, left = time.monotonic() + 20.0, ["?"]
    while left and time.monotonic() < end:
        time.sleep(0.2)
        lines = list(commands())
        lines += Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        left = [line for line in lines if str(folder) in line] + [str(one) for one in namespaces if one.exists()]
    return left


def main() -> None:
    """Start, apply, compare, delete, stop."""
    if os.geteuid():
        raise SystemExit("a fabric in the kernel and containers in its namespaces need root")
    cache = Path(os.environ.get("MILLRACE_CACHE_DIR") or Path.home() / ".cache" / "millrace").resolve()
    cache.mkdir(parents=True, exist_ok=True)
    namespaces: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        folder = Path(name).resolve()
        (folder / "run").mkdir(mode=0o700)
        write_bundle(folder, cache)
        write_settings(folder, cache)
        state = str(folder / "state")
        try:
            millrace(folder, "up", "--state", state, "--detach")
            namespaces = [one.resolve() for one in (folder / "run" / "namespaces").iterdir()]
            millrace(folder, "pod", "apply", "-f", str(write_script(folder)))
            pods = [f"line-{index}" for index in range(3)]
            logs = wait_for_logs(folder, pods)
            where = json.loads(millrace(folder, "get", "pods", "-o", "json"))
            places = sorted({one["status"]["node"] for one in where["items"]})
            print(f"pods of group line run on {' '.join(places)}", flush=True)
            fine = report(logs) and len(places) == len(pods)
            millrace(folder, "delete", "podgroup", "line")
        finally:
            millrace(folder, "down", "--state", state, check=False)
        left = left_behind(folder, namespaces)
    if left:
        raise SystemExit("left behind:\n" + "\n".join(left))
    print("torn down: no container, no namespace, no process of it is left")
    if not fine:
        raise SystemExit("the sums are not what they should be")


if __name__ == "__main__":
    main()
