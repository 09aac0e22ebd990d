"""Workers as local processes: in one network namespace each, or on sockets that only this user can reach."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from controller.acceleration.running.channels import SECRET_BYTES
from controller.acceleration.running.errors import LostWorkerError
from dataplane.fabric.kernel import namespaces
from dataplane.local.deadline import LocalDeadline, wait_readable

_START_S: Final = 60.0
_END_S: Final = 3.0
_ENVIRONMENT: Final = {
    # Keep used memory: requesting pages again costs more than many operators (mallopt(3)).
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    # Each job has its own thread; a separate arena would not reuse the previous job's memory.
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""By default one each, like a single-core machine, regardless of this machine's cores."""
_LONGEST_PARENT: Final = 70
"""The path of a socket has at most 107 bytes."""
_ROOT: Final = Path(__file__).parents[3]


class LocalWorkers:
    """Workers that run while the `with` block lasts; `addresses` and `secret` are the inputs of their cluster.

    Each computes with so many threads. `places` gives a namespace and an address in it for each, if they should run
    there.
    """

    def __init__(self, count: int, places: Sequence[tuple[str, str]] = (), threads: int = 1) -> None:
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.addresses: tuple[str, ...] = ()
        self._count, self._places, self._threads = count, places, threads
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-accel-", dir=_parent())))
            stack.callback(self._end)
            log = stack.enter_context((folder / "log").open("w+b"))
            for number in range(self._count):
                self.processes.append(self._started(number, folder, log.fileno()))
            deadline = LocalDeadline(_START_S, "the start of the workers")
            self.addresses = tuple(_address(process, deadline, folder / "log") for process in self.processes)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _started(self, number: int, folder: Path, log: int) -> subprocess.Popen[bytes]:
        namespace, address = self._places[number] if self._places else ("", f"unix:{folder}/{number}")
        argv = [sys.executable, "-m", "controller.acceleration.running.process", address, str(self._threads)]
        paths = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = dict.fromkeys(_THREADS, str(self._threads))
        environment = dict(os.environ) | _ENVIRONMENT | threads | {"PYTHONPATH": paths}
        if namespace:
            process = namespaces.start(
                namespace, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        else:
            process = subprocess.Popen(  # noqa: S603 - our own
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
            )
        if process.stdin is not None:
            process.stdin.write(self.secret.hex().encode())
            process.stdin.flush()
        return process

    def _end(self) -> None:
        """Stop all: they exit when their standard input ends, and are killed if they do not."""
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
        ends_s = time.monotonic() + _END_S
        for process in self.processes:
            try:
                process.wait(max(0.0, ends_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _parent() -> str | None:
    """Return the folder for sockets: the usual one for temporary files, unless its path leaves no room for a name."""
    return None if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_PARENT else "/tmp"  # noqa: S108 - made for us alone


def _address(process: subprocess.Popen[bytes], deadline: LocalDeadline, log: Path) -> str:
    """Return the address that a worker reports; raise LostWorkerError, with its last words, if it reports none."""
    assert process.stdout is not None
    is_ready = wait_readable(process.stdout, deadline)
    line = process.stdout.readline().decode("utf-8", "replace").strip() if is_ready else ""
    if not line:
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise LostWorkerError(f"a worker did not start: {words[-1] if words else 'no output'}")
    return line
