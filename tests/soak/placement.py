"""API server, scheduler, workload controller and managers are killed while scripts are applied and deleted.

Each is killed by SIGKILL at random moments, and started again. Meanwhile pods come and go, groups too, and a watcher
polls the control groups of all nodes: two containers of one pod's name must never run at the same time.
Afterwards every pod that was acknowledged runs, in one container, and, once all are deleted, no container is left.

Usage: python -m tests.soak.placement [--kills N] [--seed N] [--pause-s S]
As root, with podman, runc, conmon and busybox-static.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.manifests import read_text
from controller.apiserver.resources import Node, Pod, PodGroup
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.common.errors import ApiError, NotFoundError, StaleError
from controller.scheduling.settings import SchedulerSettings
from controller.workloads.nodes.runtimes.settings import RuntimeSettings
from controller.workloads.nodes.settings import NodeSettings, RestartSection
from controller.workloads.placement.settings import PlacementSettings
from dataplane.config import document_of
from tests.controller.workloads.nodes.busybox_image import podman_environment, remove_podman_storage, write_layout
from tests.waiting import comes_true

NODES = ("h1", "h2", "h3")
PODS = 8
GROUPS = 2
_SETTLE_S = 180.0
_GROUPS = Path("/sys/fs/cgroup")
_TOPOLOGY = """
millrace: 1
name: soak
switches: [{name: s1}]
hosts:
""" + "".join(
    f"  - {{name: {name}, switch: s1, cores: 16, memory: [{{kind: dram, capacity: 64 GiB}}]}}\n" for name in NODES
)
_POD = """
  image: "{image}"
  command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.2; done"]
  cpu: 100m
  stop_grace: 1 s
"""


@dataclass(slots=True)
class Report:
    """Result of the soak; `problems` is empty on success."""

    kills: dict[str, int] = field(default_factory=dict)
    applied: int = 0
    deleted: int = 0
    unacknowledged: int = 0
    """Writes with an unknown outcome: done or not, both are valid."""
    looks: int = 0
    most_running: int = 0
    ended: list[str] = field(default_factory=list)
    """Daemons that ended by themselves, and were restarted."""
    settled_s: float = 0.0
    emptied_s: float = 0.0
    problems: list[str] = field(default_factory=list)


class Daemons:
    """Processes that are killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, words: list[str], settings: object) -> None:
        """Start a daemon with its settings."""
        file = self._folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
        self._commands[name] = [sys.executable, "-m", "controller.apps.cli", *words, "-s", str(file)]
        self._run(name)

    def kill(self, name: str, pause_s: float) -> None:
        """Kill a daemon, and start it again after a pause."""
        process = self._running[name]
        process.kill()
        process.wait()
        time.sleep(pause_s)
        self._run(name)

    def revive(self) -> list[str]:
        """Restart daemons that ended by themselves, like a supervisor; return their last lines."""
        ended = [name for name, process in self._running.items() if process.poll() is not None]
        lines = [f"{name}: {self.last_words(name)}" for name in ended]
        for name in ended:
            self._run(name)
        return lines

    def last_words(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(encoding="utf-8").splitlines()[-1][:300]

    def stop(self) -> None:
        """Stop all; managers first, so that they can release their resources."""
        for name in sorted(self._running, key=lambda name: not name.startswith("node")):
            self._running[name].send_signal(signal.SIGTERM)
            try:
                self._running[name].wait(60)
            except subprocess.TimeoutExpired:
                self._running[name].kill()
                self._running[name].wait()

    def _run(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


class Watcher(threading.Thread):
    """Checks the control groups of pods: which ones run, and that none runs twice."""

    def __init__(self, report: Report) -> None:
        super().__init__(daemon=True)
        self._report, self._stop_asked = report, threading.Event()

    def run(self) -> None:
        """Look until stopped."""
        while not self._stop_asked.wait(0.05):
            containers = running()
            self._report.looks += 1
            self._report.most_running = max(self._report.most_running, len(containers))
            for pod, groups in containers.items():
                if len(groups) > 1:
                    self._report.problems.append(f"pod {pod} runs twice: {', '.join(sorted(groups))}")

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def running() -> dict[str, set[str]]:
    """Return the containers with processes of each pod of this soak, by their control groups."""
    containers: dict[str, set[str]] = {}
    base = next((path for path in (_GROUPS / "pids/millrace", _GROUPS / "millrace") if path.is_dir()), None)
    for folder, _, files in os.walk(base or _GROUPS / "millrace"):  # processes that end meanwhile are left out
        parts = Path(folder).relative_to(base or _GROUPS / "millrace").parts
        if len(parts) < 3 or not parts[1].startswith("pod-soak-") or not _is_container(parts[2]):
            continue
        try:
            processes = (Path(folder) / "cgroup.procs").read_text().split() if "cgroup.procs" in files else []
        except OSError:
            continue
        if any(_lives(process) for process in processes):
            containers.setdefault(parts[1].removeprefix("pod-"), set()).add(f"{parts[0]}/{parts[2]}")
    return containers


def _is_container(group: str) -> bool:
    return group.startswith("libpod-") and not group.startswith("libpod-conmon")


def _lives(process: str) -> bool:
    """Return whether a process is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class User(threading.Thread):
    """Applies and deletes manifests, over all deaths of the server; records acknowledgements."""

    def __init__(self, server: Place, image: str, seed: int, report: Report) -> None:
        super().__init__(daemon=True)
        self._place, self._image, self._report = server, image, report
        self._rng, self._stop_asked = random.Random(seed), threading.Event()
        self.wanted: dict[str, bool | None] = {}
        """Desired existence of each name; None if unknown."""

    def run(self) -> None:
        """Work until stopped."""
        while not self._stop_asked.wait(self._rng.uniform(0.1, 0.6)):
            number = self._rng.randrange(PODS + GROUPS)
            name = f"soak-{number}"
            try:
                with SyncApiClient(self._place, tries=1) as client:
                    self._act(client, name, is_group=number >= PODS)
            except ApiError:
                self.wanted[name] = None
                self._report.unacknowledged += 1

    def _act(self, client: SyncApiClient, name: str, *, is_group: bool) -> None:
        kind = PodGroup if is_group else Pod
        if not self.wanted.get(name):
            body = _POD.format(image=self._image)
            inner = body.replace("\n  ", "\n    ")
            text = (
                f"group:\n  name: {name}\n  size: 3\n  template:{inner}" if is_group else f"pod:\n  name: {name}{body}"
            )
            try:
                client.of(kind).create(read_text(text)[0].resource)
            except StaleError:  # it is still ending, or its creation or deletion was not acknowledged
                self.wanted[name] = True if client.of(kind).get(name).metadata.deleting_ns is None else None
                return
            self.wanted[name] = True
            self._report.applied += 1
        else:
            try:
                client.of(kind).delete(name)
            except NotFoundError:
                if self.wanted[name]:
                    self._report.problems.append(f"{name} was acknowledged and is lost")
            self.wanted[name] = False
            self._report.deleted += 1

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def soak(kills: int, seed: int, pause_s: float) -> Report:
    """Kill this many times, after pauses of this mean length, and return the result."""
    rng, report = random.Random(seed), Report()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="placement")))
        environment = podman_environment(folder / "podman")
        stack.callback(remove_podman_storage, folder / "podman", environment)
        stack.callback(_end_services, folder)
        write_layout(folder / "image")
        server = Place(f"unix:{folder}/api.sock")
        names = stack.enter_context(_daemons(folder, server, environment, report))
        daemons, order = names
        client = stack.enter_context(SyncApiClient(server))
        _until(
            lambda: sum(node.status.ready for node in client.of(Node).list().items) == len(NODES), 120, "nodes ready"
        )
        watcher, user = Watcher(report), User(server, f"oci:{folder / 'image'}:latest", seed, report)
        watcher.start()
        user.start()
        for _ in range(kills):
            time.sleep(rng.uniform(0.0, 2 * pause_s))
            report.ended += daemons.revive()
            name = rng.choice(order)
            daemons.kill(name, rng.choice((0.0, 0.0, rng.uniform(0.0, 2.0))))
            report.kills[name] = report.kills.get(name, 0) + 1
            if report.problems:
                break
        if not user.is_alive():
            report.problems.append("nobody applied scripts")
        user.stop()
        report.ended += daemons.revive()
        _settle(client, user, report, environment)
        if not watcher.is_alive() or not report.most_running:
            report.problems.append("nobody looked whether pods run twice")
        watcher.stop()
    return report


@contextmanager
def _daemons(
    folder: Path, server: Place, environment: dict[str, str], report: Report
) -> Iterator[tuple[Daemons, list[str]]]:
    """Run all daemons; a daemon's positions in a list set how often it is killed."""
    topology = folder / "topology.yaml"
    topology.write_text(_TOPOLOGY, encoding="utf-8")
    daemons = Daemons(folder)
    try:
        daemons.start("api", ["api", "serve"], ApiSettings(storage=StoragePlace(sqlite=str(folder / "db")),
                                                           listen=(server.address,)))  # fmt: skip
        daemons.start(
            "scheduler", ["scheduler", "serve"], SchedulerSettings(api=server.address, topology=str(topology))
        )
        daemons.start("placement", ["placement", "serve"], PlacementSettings(api=server.address))
        for name in NODES:
            settings = NodeSettings(
                node=name,
                state=str(folder / f"state-{name}"),
                api=server.address,
                topology=str(topology),
                runtime=RuntimeSettings(environment=environment, image_folders=(folder,)),
                restart=RestartSection(first_wait_s=0.2, longest_wait_s=2.0),
                report_s=1.0,
            )
            daemons.start(f"node-{name}", ["node", "serve"], settings)
        yield daemons, ["api", "scheduler", "placement", *(f"node-{name}" for name in NODES)]
    finally:
        daemons.stop()


def _settle(client: SyncApiClient, user: User, report: Report, environment: dict[str, str]) -> None:
    """Wait until all desired pods run, once each; then delete all, and wait until nothing is left."""
    started = time.monotonic()
    expected = {name: 3 if int(name.rpartition("-")[2]) >= PODS else 1 for name, it in user.wanted.items() if it}
    unknown = {name for name, it in user.wanted.items() if it is None}

    def settled() -> bool:
        pods = client.of(Pod).list().items
        for name, count in expected.items():
            mine = [pod for pod in pods if name in {pod.metadata.name, pod.spec.group}]
            if sum(pod.status.phase.value == "running" for pod in mine) != count:
                return False
        there = running()
        alive = {pod.metadata.name for pod in pods if pod.status.phase.value == "running"}
        return there.keys() == alive and not any(pod.metadata.deleting_ns for pod in pods)

    try:
        _until(settled, _SETTLE_S, "all that is wanted runs")
        report.settled_s = round(time.monotonic() - started, 1)
    except TimeoutError as error:
        phases = {pod.metadata.name: pod.status.phase.value for pod in client.of(Pod).list().items}
        report.problems.append(f"{error}: wanted {expected}, unknown {unknown}, pods {phases}, containers {running()}")
    started = time.monotonic()
    for group in client.of(PodGroup).list().items:
        client.of(PodGroup).delete(group.metadata.name)
    for pod in client.of(Pod).list().items:
        try:
            client.of(Pod).delete(pod.metadata.name)
        except NotFoundError:
            continue  # the workload controller was faster
    try:
        _until(lambda: not client.of(Pod).list().items and not _containers(environment), _SETTLE_S, "nothing is left")
        report.emptied_s = round(time.monotonic() - started, 1)
    except TimeoutError as error:
        left = [pod.metadata.name for pod in client.of(Pod).list().items]
        report.problems.append(f"{error}: pods {left}, containers {_containers(environment)}")


def _end_services(folder: Path) -> None:
    """Kill the podman services of killed managers: they would use their storage for 30 s more."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"podman") and any(bytes(folder) in word for word in words):
                os.kill(int(process.name), signal.SIGKILL)


def _containers(environment: dict[str, str]) -> list[str]:
    command = ["podman", "ps", "-a", "--format", "{{.Names}} {{.State}}"]
    completed = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return completed.stdout.splitlines()


def _until(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    """Wait until a condition holds, over failures of the server; raise TimeoutError."""

    def holds() -> bool:
        with suppress(ApiError):  # it comes back
            return condition()
        return False

    if not comes_true(holds, limit_s=limit_s, poll_s=0.2):
        raise TimeoutError(f"not within {limit_s:g} s: {what}")


def main() -> None:
    """Run it, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=3.0, help="between deaths, in the mean")
    options = parser.parse_args()
    report = soak(options.kills, options.seed, options.pause_s)
    print(f"{sum(report.kills.values())} deaths: {report.kills}")
    print(f"{report.applied} applied, {report.deleted} deleted, {report.unacknowledged} not acknowledged")
    print(f"{report.looks} looks, at most {report.most_running} pods at a time")
    for line in report.ended:
        print(f"ended by itself, and was started again: {line}")
    print(f"settled after {report.settled_s:g} s, nothing left after {report.emptied_s:g} s")
    for problem in report.problems[:20]:
        print(f"PROBLEM: {problem}")
    print(json.dumps(asdict(report)))
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
