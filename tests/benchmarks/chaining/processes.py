"""Processes of the chain: daemons of `millrace` with default settings, and what each process uses.

Each process is the leader of its own session, as under a service manager: the kernel divides the processors among
sessions first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.waiting import comes_true

START_S = 120.0
STOP_S = 30.0
ROOT = Path(__file__).parents[3]
_POLL_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessError(Exception):
    """A process of the chain that did not start, or ended by itself."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time of a process since its start, and its current memory."""

    at_s: float
    cpu_s: float
    rss_mib: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read a process's usage, threads together."""
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
        cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
        return cls(time.monotonic(), cpu_s, pages * os.sysconf("SC_PAGESIZE") / 1024**2)

    def cores_since(self, before: Usage) -> float:
        """Return how many cores were busy with it on the average."""
        return (self.cpu_s - before.cpu_s) / max(self.at_s - before.at_s, 1e-9)


def precede(pid: int) -> None:
    """Prefer a session over others, given its leader (root; autogroups of sched(7))."""
    Path(f"/proc/{pid}/autogroup").write_text("-10", encoding="utf-8")


def run_in_real_time(pid: int) -> None:
    """Run a process's threads before all others, as on a machine of its own (root; SCHED_RR of sched(7))."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def precede_others() -> None:
    """Prefer this process over other sessions, in its own session, out of reach of a terminal's Ctrl-C."""
    if os.getpgrp() != os.getpid():
        os.setsid()
        precede(os.getpid())


class Daemon:
    """A daemon of `millrace` that can be killed, paused and started again; it is stopped at the end of its `with`."""

    def __init__(self, name: str, command: tuple[str, ...], settings: Mapping[str, Any], folder: Path) -> None:
        self.name, self.log, self.precedes = name, folder / f"{name}.log", False
        file = folder / f"{name}.json"
        file.write_text(json.dumps(settings), encoding="utf-8")
        self._command = [sys.executable, "-m", "controller.apps.cli", *command, "--settings", str(file)]
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's number; ProcessError when it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise ProcessError(f"{self.name} does not run: {self.log_text()[-500:]}")
        return self._process.pid

    def log_text(self) -> str:
        """Return its log over all restarts."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def start(self) -> None:
        """Start it, and return once its ready line is logged."""
        before = len(self.log_text())
        self._output = self.log.open("ab")
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=self._output, start_new_session=True
        )
        if self.precedes:
            precede(self._process.pid)
        process = self._process

        def is_ready() -> bool:
            return ": ready: " in self.log_text()[before:]

        comes_true(lambda: is_ready() or process.poll() is not None, limit_s=START_S, poll_s=_POLL_S)
        if not is_ready():
            raise ProcessError(f"{self.name} did not start: {self.log_text()[before:][-500:]}")

    def kill(self) -> None:
        """End it by SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def release(self) -> None:
        """Let it go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it by SIGTERM, and by SIGKILL if that takes long."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        self._wait()

    def _wait(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._output is not None:
            self._output.close()

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def collector(topology: str, folder: Path, udp_port: int) -> Daemon:
    """Return a collector on loopback, where the sender relays the switches' reports."""
    settings = {
        "topology": topology,
        "receiver": {"address": "127.0.0.1", "udp_port": udp_port},
        "feed": {"address": f"unix:{folder}/collector.sock"},
        "collector": {"relays": ["127.0.0.1"]},
    }
    return Daemon("collector", ("collector",), settings, folder)


def path_server(topology: str, folder: Path, *, lasting: bool = False) -> Daemon:
    """Return a path server at that collector; a lasting one keeps its routes in a file across restarts."""
    settings: dict[str, Any] = {
        "topology": topology,
        "feed": f"unix:{folder}/collector.sock",
        "listen": f"unix:{folder}/paths.sock",
    }
    if lasting:
        settings["records"] = {"database": f"{folder}/paths.sqlite"}
    return Daemon("paths", ("paths", "serve"), settings, folder)


def controller(topology: str, folder: Path, switches: str) -> Daemon:
    """Return a controller at both, of switches whose addresses have a pattern."""
    settings = {
        "topology": topology,
        "switches": switches,
        "path_server": f"unix:{folder}/paths.sock",
        "collector": f"unix:{folder}/collector.sock",
        "listen": f"unix:{folder}/controller.sock",
    }
    return Daemon("controller", ("controller",), settings, folder)
