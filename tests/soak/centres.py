"""API server, agents, keepers and jobs of two centres are killed at random while tasks come and go.

Every task writes down when each of its jobs begins and ends, on which cores. Afterwards every task has ended, no job
has begun twice in an epoch, whatever succeeded has run to its end in the epoch that succeeded, no two jobs of a centre
had a core at the same time, each probe has at most one result an epoch, and no process, share or file is left.

Usage: python -m tests.soak.centres [--kills N] [--seed N] [--pause-s S]
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Centre, Metadata, ProbeResult, ProbeTask, Task
from controller.apiserver.resources.centre import CentreSpec
from controller.apiserver.resources.task import TASK_ENDED, Program, ProgramKind, TaskPhase, TaskSpec
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.common.errors import ApiError, NotFoundError, StaleError
from controller.probing import files
from controller.probing.expert import loads
from controller.probing.library import KernelLibrary
from controller.workloads.centres.settings import CentreSettings, ControlGroups, TrialSettings, UnitSettings
from dataplane.config import Strict, document_of
from tests.sandboxes import local_settings
from tests.soak.killing import main
from tests.waiting import comes_true

CENTRES = ("east", "west")
AT_ONCE = 6
_SETTLE_S = 120.0
_PROBE = "millrace: 1\nname: triad\nkernels: [{kernel: stream-triad, repetitions: 2, sizes: {n: 100000}}]\n"
_WORK = """
import json, os, sys, time
def tell(what):
    line = json.dumps([os.environ["MILLRACE_JOB"], what, os.environ["MILLRACE_CORES"], time.monotonic_ns()])
    place = sys.argv[1] + "/" + os.environ["MILLRACE_JOB"]  # one for each job, as each has a user of its own
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, (line + chr(10)).encode())
tell("begin")
time.sleep(float(sys.argv[2]))
tell("end")
"""


@dataclass
class Report:
    """Result of the soak; `problems` is empty on success."""

    kills: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    results: int = 0
    problems: list[str] = field(default_factory=list)


class Daemon:
    """A daemon as a process."""

    def __init__(self, folder: Path, name: str, words: tuple[str, ...], settings: Strict) -> None:
        self.name, self._log = name, folder / f"{name}.log"
        self._file = folder / f"{name}.yaml"
        self._file.write_text(yaml.safe_dump(document_of(settings)))
        self._words = words
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "controller.apps.cli", *self._words, "--settings", str(self._file)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()


class Soak:
    """One run in a folder."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.report = folder, rng, Report()
        self.told = folder / "told"
        self.told.mkdir()
        self.told.chmod(0o777)
        self.socket = f"unix:{folder}/api.sock"
        settings = ApiSettings(storage=StoragePlace(sqlite=f"{folder}/api.sqlite"), listen=(self.socket,))
        self.api = Daemon(folder, "api", ("api", "serve"), settings)
        self.client = SyncApiClient(Place(self.socket), tries=8)
        self.agents = {name: self._agent(name) for name in CENTRES}
        self.numbers = 0
        self.stop = threading.Event()

    def _agent(self, name: str) -> Daemon:
        cores = sorted(os.sched_getaffinity(0))[:2]
        settings = CentreSettings(
            centre=name,
            state=f"{self.folder}/{name}",
            api=self.socket,
            units=(UnitSettings(name="core"),),
            local=local_settings(
                cores=",".join(map(str, cores)), control_groups=ControlGroups.AUTO, writable=(str(self.told),)
            ),
            trial=TrialSettings(kernels=("stream-triad",)),
            report_s=0.5,
            look_s=0.3,
            grace_s=0.5,
        )
        return Daemon(self.folder, name, ("centre", "serve"), settings)

    def prepare(self) -> None:
        self.until(self._add_probe)
        for name in CENTRES:
            self.until(partial(self._is_ready, name))
            centre = self.client.of(Centre).get(name)
            # No scheduler detects silent centres here, and none may be refused for its silence.
            self.client.of(Centre).replace(
                Centre(metadata=Metadata(name=name, labels=centre.metadata.labels), spec=CentreSpec(lease_s=600.0))
            )

    def _is_ready(self, centre: str) -> bool:
        return self.client.of(Centre).get(centre).status.ready

    def _add_probe(self) -> bool:
        made = loads(_PROBE, KernelLibrary())
        self.client.of(ProbeTask).create(ProbeTask(metadata=Metadata(name=made.name), spec=files.to_spec(made)))
        return True

    def until(self, condition: Callable[[], bool], settle_s: float = _SETTLE_S) -> bool:
        """Return whether a condition comes true in time; the API server may be down meanwhile."""

        def holds() -> bool:
            with suppress(ApiError):
                return condition()
            return False

        return comes_true(holds, limit_s=settle_s, poll_s=0.1)

    def dispatch_for_ever(self) -> None:
        """Keep some tasks alive; dispatch pending ones to centres with room."""
        while not self.stop.is_set():
            with suppress(ApiError):
                self.dispatch_once(more=True)
            time.sleep(0.05)

    def dispatch_once(self, *, more: bool) -> int:
        """Dispatch pending tasks; return how many have not ended."""
        alive = [task for task in self.client.of(Task).list().items if task.status.phase not in TASK_ENDED]
        if more and len(alive) < AT_ONCE:
            self.numbers += 1
            self.client.of(Task).create(Task(metadata=Metadata(name=f"t{self.numbers}"), spec=self._spec()))
        for task in alive:
            if task.status.phase is TaskPhase.PENDING:
                item = Dispatch(task=task.metadata.name, centre=self.rng.choice(CENTRES), unit="core")
                with suppress(StaleError, NotFoundError):
                    self.client.dispatch(DispatchRequest(dispatches=(item,)))
        return len(alive)

    def _spec(self) -> TaskSpec:
        if self.numbers % 5 == 0:
            return TaskSpec(program=Program(kind=ProgramKind.PROBE, entry="triad"), is_probe=True)
        seconds = f"{self.rng.uniform(0.05, 1.5):.2f}"
        arguments = (str(self.told), seconds)
        return TaskSpec(program=Program(kind=ProgramKind.PYTHON, text=_WORK, arguments=arguments))

    def kill_something(self) -> None:
        """Kill the API, an agent, a keeper, or a job's processes except its keeper."""
        kind = self.rng.choices(("api", "agent", "keeper", "job"), (2, 4, 2, 2))[0]
        keepers = self._keepers() if kind in ("keeper", "job") else []
        if keepers:
            keeper = self.rng.choice(keepers)
            jobs = _text(Path(f"/proc/{keeper}/task/{keeper}/children")).split()
            for process in [keeper] if kind == "keeper" else map(int, jobs):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        else:
            kind = "api" if kind == "api" else "agent"
            daemon = self.api if kind == "api" else self.agents[self.rng.choice(CENTRES)]
            daemon.kill()
            time.sleep(self.rng.uniform(0, 1.0))
            daemon.start()
        self.report.kills[kind] += 1

    def _keepers(self) -> list[int]:
        """Return the keepers that are alive."""
        pids = [int(text) for lock in self.folder.glob("*/engine/*/lock") if (text := _text(lock)).isdigit()]
        return [keeper for keeper in pids if b"keeper.py" in _bytes(Path(f"/proc/{keeper}/cmdline"))]

    def run(self, kills: int, pause_s: float) -> Report:
        """Kill this many times, let everything settle, and check."""
        try:
            self.prepare()
            dispatcher = threading.Thread(target=self.dispatch_for_ever)
            dispatcher.start()
            for _ in range(kills):
                time.sleep(self.rng.uniform(0.2, 2 * pause_s))
                self.kill_something()
            self.until(lambda: self.numbers >= 2 * AT_ONCE)
            self.stop.set()
            dispatcher.join()
            if not self.until(lambda: self.dispatch_once(more=False) == 0):
                alive = [task for task in self.client.of(Task).list().items if task.status.phase not in TASK_ENDED]
                self.report.problems += [f"{task.metadata.name} has not ended: {task.status}" for task in alive]
            self.look()
        finally:
            self.stop.set()
            for daemon in (*self.agents.values(), self.api):
                daemon.kill(signal.SIGTERM)
            self.client.close()
        return self.report

    def look(self) -> None:
        """Compare the jobs' records with the API's."""
        report, problems = self.report, self.report.problems
        told = [json.loads(line) for file in self.told.iterdir() for line in file.read_text().splitlines()]
        begun, ended = ({job: (cores, at) for job, w, cores, at in told if w == what} for what in ("begin", "end"))
        twice = [
            job for job, number in Counter(job for job, what, _, _ in told if what == "begin").items() if number > 1
        ]
        problems += [f"{job} has begun twice" for job in twice]
        placed: dict[str, str] = {}
        for task in self.client.of(Task).list().items:
            status, name = task.status, task.metadata.name
            report.tasks[status.phase.value] += 1
            report.epochs += status.epoch
            job = f"millrace-task-{name}-{task.metadata.uid[:8]}-{status.epoch}"
            placed[job] = status.centre or ""
            if status.phase is TaskPhase.SUCCEEDED and not task.spec.is_probe and job not in ended:
                problems.append(f"{name} has succeeded, but its job of epoch {status.epoch} has not ended")
        spans = [
            (placed[job], cores, at, ended[job][1], job)
            for job, (cores, at) in begun.items()
            if job in ended and job in placed
        ]
        for index, span in enumerate(spans):
            for other in spans[:index]:
                if span[:2] == other[:2] and span[2] < other[3] and other[2] < span[3]:
                    problems.append(f"{span[4]} and {other[4]} had core {span[1]} of {span[0]} at the same time")
        results = Counter((item.spec.task, item.metadata.name) for item in self.client.of(ProbeResult).list().items)
        report.results = len(results)
        problems += [f"{task} has result {name} twice" for (task, name), number in results.items() if number > 1]
        if not self.until(self._is_empty, 30.0):
            problems.append(f"left over: {self._left()}")
        for daemon in (self.api, *self.agents.values()):
            if "Traceback" in daemon.log:
                problems.append(
                    f"{daemon.name} has a stack trace: {daemon.log[daemon.log.index('Traceback') :][:2000]}"
                )

    def _is_empty(self) -> bool:
        return not any(self.client.of(Centre).get(name).shares for name in CENTRES) and not self._left()

    def _left(self) -> list[str]:
        files_ = [str(path) for pattern in ("*/engine/*", "*/jobs/*") for path in self.folder.glob(pattern)]
        marked = [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if self._is_ours(path)]
        return files_ + marked

    def _is_ours(self, environ: Path) -> bool:
        content = _bytes(environ)
        return b"MILLRACE_JOB=" in content and str(self.folder).encode() in content


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace").strip()


if __name__ == "__main__":
    sys.exit(main(__doc__, Soak))
