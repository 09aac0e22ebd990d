"""Time from a container's creation until it runs: runc and podman by themselves, and through our runtimes.

    sudo python -m tests.benchmarks.containers [--rounds 30]

Bare: `runc run --detach` of a prepared bundle; `podman run --detach`; and two requests to podman's service, create and
start, by http.client. Ours: `create` and `start_container` of each runtime, with image lookup by digest, root folder
mount, config.json, conmon and log. The runs alternate on one machine; the medians are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from controller.workloads.nodes.runtimes.base import ContainerOrder, Runtime
from controller.workloads.nodes.runtimes.podman import PodmanRuntime
from controller.workloads.nodes.runtimes.runc import RuncRuntime
from controller.workloads.nodes.runtimes.security import HostFolders
from tests.controller.workloads.nodes.busybox_image import podman_environment, remove_podman_storage, write_layout

COMMAND = ("/bin/sleep", "1000")
Side = Callable[[int], Awaitable[float]]


def main() -> None:
    """Measure, print a table, and the figures as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("containers: needs root")
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        times = asyncio.run(measure(Path(folder), arguments.rounds))
    figures = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:16} {figures[name]:7.1f} ms   ({min(values) * 1e3:.1f} to {max(values) * 1e3:.1f})")
    figures["runc_overhead"] = figures["runc_ours"] - figures["runc_bare"]
    figures["podman_overhead"] = figures["podman_ours"] - figures["podman_service"]
    print(json.dumps({f"{name}_ms": round(value, 1) for name, value in figures.items()}))


async def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each side, in turns."""
    environment = podman_environment(folder / "podman")
    write_layout(folder / "image", command=COMMAND)
    os.environ.update(environment)
    async with AsyncExitStack() as stack:
        stack.callback(remove_podman_storage, folder / "podman", environment)
        podman = PodmanRuntime(
            folder / "podman" / "own", environment=environment, folders=HostFolders(images=(folder,))
        )
        runc = RuncRuntime(folder / "runc", folders=HostFolders(images=(folder,)))
        for runtime in (podman, runc):
            await runtime.start()
            stack.push_async_callback(runtime.close)
        digests = {runtime: (await runtime.pull(f"oci:{folder / 'image'}:latest")).digest for runtime in (podman, runc)}
        service = folder / "podman" / "own" / "podman.sock"
        sides: dict[str, Side] = {
            "runc_bare": lambda number: asyncio.to_thread(run_runc, folder, digests[runc], number),
            "runc_ours": lambda number: run_ours(runc, digests[runc], number),
            "podman_command": lambda _: asyncio.to_thread(run_podman),
            "podman_service": lambda number: asyncio.to_thread(run_service, service, number),
            "podman_ours": lambda number: run_ours(podman, digests[podman], number),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(-1, rounds):
            for name, side in sides.items():
                taken_s = await side(number)
                if number >= 0:
                    times[name].append(taken_s)
    return times


async def run_ours(runtime: Runtime, digest: str, number: int) -> float:
    """Make and start a container by one of our runtimes, and remove it."""
    order = ContainerOrder(name=f"ours-{number}", labels={"millrace.node": "n1"}, image=digest, command=COMMAND)
    begun = time.perf_counter()
    container = await runtime.create(order)
    await runtime.start_container(container)
    taken_s = time.perf_counter() - begun
    await runtime.remove(container)
    return taken_s


def run_runc(folder: Path, digest: str, number: int) -> float:
    """Run a bundle of the same image directly by runc."""
    bundle, name = folder / "bare", f"bare-{number}"
    if not bundle.exists():
        bundle.mkdir()
        subprocess.run(["runc", "spec"], cwd=bundle, check=True)
        config: dict[str, Any] = json.loads((bundle / "config.json").read_text())
        config["process"] |= {"args": COMMAND, "terminal": False, "rlimits": []}
        config["root"] = {"path": str(folder / "runc" / "images" / digest.removeprefix("sha256:") / "rootfs")}
        (bundle / "config.json").write_text(json.dumps(config))
    begun = time.perf_counter()
    run("runc", "run", "--detach", "--bundle", str(bundle), name)
    taken_s = time.perf_counter() - begun
    run("runc", "delete", "--force", name)
    return taken_s


def run_podman() -> float:
    """Run a container of the image by podman's command."""
    (image,) = subprocess.check_output(["podman", "images", "--quiet"], text=True).split()
    begun = time.perf_counter()
    run("podman", "run", "--detach", "--name", "bare", image, *COMMAND)
    taken_s = time.perf_counter() - begun
    run("podman", "rm", "--force", "--time", "0", "bare")
    return taken_s


def run_service(path: Path, number: int) -> float:
    """Make and start a container by two plain requests to podman's service."""
    (image,) = (entry["Id"] for entry in ask(path, "GET", "images/json"))
    wanted = {
        "image": image,
        "name": f"plain-{number}",
        "entrypoint": COMMAND,
        "netns": {"nsmode": "none"},
        "log_configuration": {"driver": "k8s-file"},
    }
    begun = time.perf_counter()
    container = ask(path, "POST", "containers/create", wanted)["Id"]
    ask(path, "POST", f"containers/{container}/start")
    taken_s = time.perf_counter() - begun
    ask(path, "DELETE", f"containers/{container}?force=true&timeout=0")
    return taken_s


def ask(path: Path, method: str, what: str, body: object = None) -> Any:
    """Return what podman's service answers."""
    connection = http.client.HTTPConnection("podman")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    with closing(connection):
        content = None if body is None else json.dumps(body)
        connection.request(method, f"/v4.0.0/libpod/{what}", content, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    if answer.status >= 400:
        raise SystemExit(f"podman: {what}: {text.decode()}")
    return json.loads(text) if text else None


def run(*command: str) -> None:
    """Run a command, which is to succeed."""
    # Containers keep inherited descriptors open: no pipe may wait for them.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}")


if __name__ == "__main__":
    main()
