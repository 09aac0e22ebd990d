"""A standalone Spark cluster of child processes: a master, and workers that start executors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from controller.acceleration.running.errors import LostWorkerError, RunError
from controller.acceleration.running.spark import guarding, properties, software
from dataplane.fabric.kernel import namespaces
from dataplane.given import read_given
from dataplane.local.deadline import LocalDeadline

_START_S: Final = 120.0
_END_S: Final = 10.0
_STEP_S: Final = 0.05
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER: Final = re.compile(r"Successfully registered with master (spark://\S+)")
_MASTER_CLASS: Final = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS: Final = "org.apache.spark.deploy.worker.Worker"
_PARTITIONS: Final = 4
"""Partitions of a shuffle for each core: small ones are merged again (adaptive execution), large ones never split."""


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace, '' for that of the caller, and an address in it."""

    namespace: str = ""
    address: str = "127.0.0.1"


class Daemon:
    """A process of Spark under a guard, with its log; `kill` ends it and all that it has started."""

    def __init__(
        self, name: str, place: Place, argv: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        guarded = [sys.executable, "-I", guarding.__file__, *argv]
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            self.process = started(place, guarded, out, environment)
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name=f"spark-{name}", daemon=True).start()

    def _watch(self) -> None:
        assert self.process.stdout is not None
        # A line of the guard when the process has ended; nothing when the guard has.
        self.process.stdout.readline()
        self._ended.set()

    def has_ended(self) -> bool:
        """Return whether the process of Spark has ended."""
        return self._ended.is_set()

    def kill(self) -> None:
        """Kill the process, its guard and all of their group."""
        # Unreaped, the guard's number cannot belong to another group.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._ended.wait(_END_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def said(self, pattern: re.Pattern[str], deadline: LocalDeadline) -> str:
        """Return what the log says in a pattern's group; LostWorkerError, with its last line, if it never does."""
        while True:
            has_ended = self.has_ended()
            text = read_given(self.log).decode("utf-8", "replace")
            if (match := pattern.search(text)) is not None:
                return match[1]
            if has_ended or deadline.has_passed():
                words = next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
                raise LostWorkerError(f"Spark's {self.name} did not start: {words}")
            time.sleep(_STEP_S)


def started(
    place: Place, argv: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process at a place, in a session of its own, with pipes to it and from it."""
    if place.namespace:
        return namespaces.start(
            place.namespace, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        )
    return subprocess.Popen(  # noqa: S603 - our own
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
    )


class SparkCluster:
    """A standalone master and workers that run while the `with` block lasts.

    `master` is its URL, `settings` what a session with it needs; they have a secret that no command line has. Each
    worker has this many cores and MiB of memory for its executor. Without `places` all listen on 127.0.0.1; with them
    the first is the master's, the others are the workers'. Web pages answer nobody. Raise RunError, or LostWorkerError
    with the last words of a process that does not start.
    """

    def __init__(
        self,
        workers: int,
        *,
        cores: int = 1,
        memory_mb: int = 1024,
        places: Sequence[Place] = (),
        scratch: Path | None = None,
    ) -> None:
        """Keep logs and spilled data in a new folder in `scratch`, by default the folder of temporary files."""
        if workers < 1 or (places and len(places) != workers + 1):
            raise RunError("a cluster of Spark needs at least one worker, and a place for its master and each worker")
        self.master = ""
        self.settings: dict[str, str] = {}
        self.daemons: list[Daemon] = []
        self._workers, self._cores, self._memory_mb = workers, cores, memory_mb
        self._places, self._scratch = tuple(places) or (Place(),) * (workers + 1), scratch
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        home, java = software.spark_home(), software.java_home()
        secret = properties.authenticated(properties.new_secret())
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-spark-", dir=self._scratch)))
            stack.callback(self._end)
            properties.write(folder / "conf", secret | properties.QUIET | properties.closed_pages())

            def start(name: str, place: Place, words: Sequence[str]) -> Daemon:
                argv = [str(home / "bin" / "spark-class"), *words]
                environment = properties.environment(home, java, folder / "conf", place.address)
                local = folder / f"{name}-local"
                local.mkdir(mode=0o700)
                daemon = Daemon(name, place, argv, folder, environment | {"SPARK_LOCAL_DIRS": str(local)})
                self.daemons.append(daemon)
                return daemon

            deadline = LocalDeadline(_START_S, "the start of Spark's master and workers")
            first, *others = self._places
            listening = ["--port", "0", "--webui-port", "0"]
            main = start("master", first, [_MASTER_CLASS, "--host", first.address, *listening])
            self.master = main.said(_MASTER, deadline)
            size = ["--cores", str(self._cores), "--memory", f"{self._memory_mb}m"]
            for number, place in enumerate(others, 1):
                work = ["--work-dir", str(folder / f"worker{number}-work")]
                start(
                    f"worker{number}",
                    place,
                    [_WORKER_CLASS, "--host", place.address, *listening, *size, *work, self.master],
                )
            for daemon in self.daemons[1:]:
                daemon.said(_WORKER, deadline)
            self.settings = secret | {
                "spark.executor.memory": f"{self._memory_mb}m",
                "spark.executor.cores": str(self._cores),
                "spark.sql.shuffle.partitions": str(_PARTITIONS * self._workers * self._cores),
                "spark.driver.host": first.address,
                "spark.driver.bindAddress": first.address,
            }
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def place(self) -> Place:
        """The master's place, which is that of sessions as well."""
        return self._places[0]

    def check(self) -> None:
        """Raise LostWorkerError if the master, or all workers, have ended: a session would wait for others."""
        main, *workers = self.daemons
        if main.has_ended():
            raise LostWorkerError("Spark's master has ended")
        if all(worker.has_ended() for worker in workers):
            raise LostWorkerError(f"Spark's workers have ended, all {len(workers)}")

    def _end(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()
