"""Hosts in namespaces around one switch, the controller with its job service, and workers that are processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import yaml

from controller.aggregation.job_settings import JobSettings
from controller.aggregation.settings import AggregationSettings
from controller.daemon_settings import DaemonSettings, RetrySettings
from controller.p4runtime.session import FABRIC_AGGREGATION, fabric_program
from dataplane.fabric.kernel import KernelFabric
from dataplane.fabric.topology_file import dumps
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
from tests.integration.allreduce_namespaces import SWITCH, star

ROOT = Path(__file__).parents[2]
MS = 1_000_000
WAIT_S = 60.0
RATE_BPS = 1_000_000_000
JOBS = JobSettings(lease_ns=3000 * MS, reconnect_ns=300 * MS, hold_ns=20_000 * MS, window=64)
AGGREGATION = AggregationSettings(dead_after_ns=2000 * MS)


class JobFabric:
    """A star in the kernel under a controller while the `with` block lasts; needs root."""

    def __init__(self, workers: int, jobs: JobSettings = JOBS) -> None:
        self.topology = star(workers, RATE_BPS)
        self.fabric = KernelFabric(self.topology)
        self._jobs = jobs
        self._daemon: Process | None = None
        self._workers: list[Process] = []

    def __enter__(self) -> Self:
        # Here, where it may take as long as it takes on a busy machine; the switch finds it in the cache.
        compile_program(load_program(*reversed(fabric_program(FABRIC_AGGREGATION))), Purpose.FORWARDING)
        self.fabric.__enter__()
        self.fabric.wait_ready(WAIT_S)
        self.start_daemon()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self._workers, self._daemon):
            if process is not None:
                process.close()
        self.fabric.close()

    @property
    def address(self) -> str:
        """Where the job service is, for all namespaces."""
        return f"unix:{self.fabric.run_dir}/jobs"

    def start_daemon(self) -> None:
        """Start the controller, and wait until its switch is right."""
        folder = self.fabric.run_dir
        (folder / "star.yaml").write_text(dumps(self.topology), encoding="utf-8")
        settings = DaemonSettings(
            topology=str(folder / "star.yaml"),
            switches={SWITCH: self.fabric.p4runtime_address(SWITCH)},
            watches=(),
            jobs=msgspec.structs.replace(self._jobs, listen=self.address),
            aggregation=AGGREGATION,
            retry=RetrySettings(longest_wait_ns=200 * MS),
        )
        (folder / "controller.yaml").write_text(yaml.safe_dump(msgspec.to_builtins(settings)), encoding="utf-8")
        command = [sys.executable, "-m", "controller.cli", "controller", "-s", str(folder / "controller.yaml")]
        self._daemon = Process(subprocess.Popen(command, stderr=subprocess.PIPE, env=_environment()), "stderr")
        self._daemon.wait_for("right, after")

    def stop_daemon(self) -> None:
        """Kill the controller."""
        assert self._daemon is not None
        self._daemon.close()

    def start_worker(self, host: str, workers: int) -> Process:
        """Start a worker in its host's namespace."""
        command = [sys.executable, "-m", "tests.integration.job_worker", self.address, host, str(workers)]
        started = self.fabric.run_in(
            host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, env=_environment()
        )
        process = Process(started, "stdout")
        self._workers.append(process)
        return process


class Process:
    """A process whose lines are read as they come."""

    def __init__(self, process: subprocess.Popen[bytes], stream: str) -> None:
        self.process = process
        self.lines: list[str] = []
        self._stream = getattr(process, stream)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self.lines.append(line.decode().rstrip())
                self._changed.notify_all()

    def wait_for(self, text: str, start: int = 0) -> int:
        """Return the number of the first line from `start` on with a text in it."""

        def found() -> int | None:
            return next((at for at, line in enumerate(self.lines) if at >= start and text in line), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None or self.process.poll() is not None, WAIT_S)
            place = found()
        assert place is not None, (text, self.lines[-20:])
        return place

    @property
    def sums(self) -> dict[int, int]:
        """What it has printed, by the all-reduce's number."""
        rows: list[dict[str, Any]] = [json.loads(line) for line in self.lines]
        return {row["count"]: row["sum"] for row in rows}

    def stop(self) -> int:
        """Have it ask all to stop; return how it ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        """Return how it ended."""
        status = self.process.wait(WAIT_S)
        self._thread.join(WAIT_S)
        return status

    def close(self) -> None:
        """End it and close its pipes."""
        self.process.kill()
        self.process.wait()
        self._thread.join(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
