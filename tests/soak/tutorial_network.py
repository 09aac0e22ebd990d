"""One exercise of p4lang's tutorials while it runs, and what its programs print."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from tests.waiting import comes_true

START_S, COMMAND_S = 180.0, 120.0
"""Time limits of a network's start up to the prompt, including compilation of a new program, and of a command."""


class TutorialError(Exception):
    """A tutorial misbehaved; the message has its output."""


class Network:
    """An exercise's network, from `make run` to the end of Mininet's prompt."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder.resolve()
        self._devices = _devices()
        self._marks = itertools.count()
        self._process = subprocess.Popen(
            ["make", "run"],
            cwd=folder,
            env={"PATH": path, "HOME": os.environ.get("HOME", "/root"), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._said: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self._path = path

    def __enter__(self) -> Network:
        try:
            self._wait_for("Starting mininet CLI", START_S)
        except TutorialError:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, command: str, timeout_s: float = COMMAND_S) -> str:
        """Return what a command of Mininet's prompt prints."""
        mark = f"=== {next(self._marks)} ==="
        start = len(self._text())
        self._write(f"{command}\nsh echo '{mark}'\n")
        self._wait_for(mark, timeout_s, start)
        output = self._text()[start:].partition(mark)[0]
        return "\n".join(line.removeprefix("mininet> ") for line in output.replace("\r", "").splitlines())

    def start(self, host: str, command: str, log: str, ready: str | None = None) -> None:
        """Start a program on a host, its output in a file; return once that contains `ready`."""
        self.run(f"{host} PYTHONUNBUFFERED=1 {command} > {log} 2>&1 & echo $! > {log}.pid")
        if ready is not None:
            self.wait(lambda: ready in self.read(log), f"{command} on {host} never said {ready!r}")

    def end(self, host: str, log: str) -> None:
        """End the program whose output is in a file."""
        self.run(f"{host} kill -KILL $(cat {log}.pid)")

    def read(self, log: str) -> str:
        """Return the output of a program by now."""
        path = self.folder / log
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, condition: Callable[[], bool], problem: str, timeout_s: float = COMMAND_S) -> None:
        """Return once a condition holds; raise TutorialError."""
        if not comes_true(condition, limit_s=timeout_s, poll_s=0.1):
            raise TutorialError(f"{problem}\n{self._text()[-3000:]}")

    @contextmanager
    def controller(self, log: str) -> Iterator[None]:
        """Run the exercise's own controller while the `with` block lasts."""
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                ["python3", "mycontroller.py"],
                cwd=self.folder,
                env={"PATH": self._path, "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=out,
            )
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Leave the prompt, and wait until the whole network is gone."""
        try:
            self._write("exit\n")
            self._process.wait(COMMAND_S)
        except (OSError, subprocess.TimeoutExpired):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Kill processes in this copy of the exercise, and remove its links: a failed start leaves them."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is a thread of the kernel
                if (process / "cwd").resolve() == self.folder:
                    os.kill(int(process.name), signal.SIGKILL)
        for device in sorted(_devices() - self._devices):
            subprocess.run(["ip", "link", "del", device], check=False, stderr=subprocess.DEVNULL)

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def _text(self) -> str:
        with self._changed:
            return "".join(self._said)

    def _read(self, stream: IO[str] | None) -> None:
        assert stream is not None
        for line in stream:
            with self._changed:
                self._said.append(line)
                self._changed.notify_all()

    def _wait_for(self, text: str, timeout_s: float, start: int = 0) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while text not in "".join(self._said)[start:]:
                if self._process.poll() is not None or not self._changed.wait(deadline - time.monotonic()):
                    raise TutorialError("".join(self._said)[-6000:] + self._logs())

    def _logs(self) -> str:
        return "".join(f"\n{log}:\n{log.read_text(errors='replace')[-2000:]}" for log in self.folder.glob("logs/*.log"))


def _devices() -> set[str]:
    return {path.name for path in Path("/sys/class/net").glob("s[0-9]*-eth[0-9]*")}


# ---- what programs print


def packets(text: str) -> list[dict[str, str]]:
    """Return the packets that Scapy's show() prints, each with its fields by layer: "IP.ttl"."""
    shown: list[dict[str, str]] = []
    for block in text.split("got a packet")[1:]:
        fields: dict[str, str] = {}
        layer = ""
        for line in block.splitlines():
            if (head := re.match(r"[ |]*#+\[ (.+?) \]#+", line)) is not None:
                layer = head[1]
            elif (field := re.match(r"[ |]*([\w ]+?)\s*= ?(.*?)\s*$", line)) is not None:
                name = f"{layer}.{field[1]}"
                fields[name] = f"{fields[name]} {field[2]}" if name in fields else field[2]
        shown.append(fields)
    return shown


def fields(packet: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return some fields of a packet that is shown."""
    return {name: packet.get(name, "-") for name in names}
