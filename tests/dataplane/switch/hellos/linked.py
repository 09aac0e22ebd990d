"""Two `millrace switch` processes on the two ends of a veth cable, with hellos set by gNMI, and faults of the cable."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from finsy.gnmiclient import GNMIClient
from finsy.gnmipath import GNMIPath

from dataplane.fabric.kernel import namespaces
from dataplane.linux.bpf import EXIT, SET, instruction, load_program
from dataplane.nic.devices import ethernet
from dataplane.nic.devices.device import find_device
from dataplane.nic.ports import bpf
from tests.network_namespace import network_namespace
from tests.waiting import wait_until

ROOT = Path(__file__).parents[4]
DEADLINE_S = 60.0
DROP = 1
"""XDP_DROP."""
_LINE = re.compile(r"^(\S+ \S+),(\d+) \w+ \S+: (.*)$")


class DropEverything(bpf.SocketProgram):
    """Drops every incoming frame of a device before any socket sees it, until closed."""

    def _load(self) -> int:
        code = instruction(SET, immediate=DROP) + instruction(EXIT)
        return self._keep(load_program(bpf._PROG_TYPE_XDP, code, attach_type=bpf._ATTACH_TYPE_XDP))


class End:
    """One switch process; `wait_for_line` waits for a line of its log."""

    def __init__(self, namespace: str, folder: Path, device: str, number: int, driver: tuple[str, ...]) -> None:
        self.device, self._namespace = device, namespace
        self.log, self.socket, ready = folder / f"{device}.log", folder / f"{device}.sock", folder / f"{device}.ready"
        argv = [sys.executable, "-m", "dataplane.switch.process", "-i", f"1@{device}", "--device-id", str(number)]
        self._stats = folder / f"{device}.json"
        argv += [
            "--ready-file",
            str(ready),
            "--stats-file",
            str(self._stats),
            "--log-level",
            "info",
            *driver,
            "--no-p4",
        ]
        argv += ["--", "--grpc-server-addr", f"unix:{self.socket}", "--cpu-port", "255"]
        with self.log.open("wb") as log:
            environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
            self.process: subprocess.Popen[bytes] = namespaces.start(namespace, argv, stderr=log, env=environment)
        self._ready, self._seen = ready, 0

    def wait_ready(self) -> None:
        """Wait until it serves."""
        wait_until(lambda: self._ready.exists() or self.process.poll() is not None, "never ready", limit_s=DEADLINE_S)
        assert self.process.poll() is None, self.log.read_text()

    def say_hello(self, interval_us: int, multiplier: int) -> None:
        """Set hellos on its port."""
        config = {"enabled": True, "desired-minimum-tx-interval": interval_us, "detection-multiplier": multiplier}
        base = f"bfd/interfaces/interface[id={self.device}]/config"

        async def work() -> None:
            async with GNMIClient(f"unix:{self.socket}") as client:
                await client.set(update=[(GNMIPath(f"{base}/{leaf}"), value) for leaf, value in config.items()])

        asyncio.run(work())

    def wait_for_line(self, *words: str) -> float:
        """Wait for the next line that has one of these words; return when it was written (time.time())."""

        def lines() -> list[str]:
            return self.log.read_text().splitlines()[self._seen :]

        def matches() -> Iterator[tuple[int, re.Match[str]]]:
            for index, line in enumerate(lines(), self._seen):
                if any(word in line for word in words) and (match := _LINE.match(line)) is not None:
                    yield index, match

        wait_until(lambda: any(matches()), lambda: f"{self.device} did not say {words}: {lines()}", limit_s=DEADLINE_S)
        index, match = next(matches())
        self._seen = index + 1
        return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").timestamp() + int(match[2]) / 1000

    def stats(self) -> dict[str, Any]:
        """Return the ports' states as the statistics file has them."""
        states: dict[str, Any] = json.loads(self._stats.read_text())["port_states"]
        return states

    def count(self, word: str) -> int:
        """Return how many lines have a word."""
        return sum(word in line for line in self.log.read_text().splitlines())

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it, stopped or not; it may have ended."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.process.wait()


class Linked:
    """A cable a1-b1 in a namespace of its own with a switch at each end; use it as a context manager."""

    def __init__(self, folder: Path, driver: tuple[str, ...] = ()) -> None:
        self._folder, self._driver = folder, driver
        self._stack = ExitStack()

    def __enter__(self) -> Linked:
        with ExitStack() as stack:
            self._namespace = stack.enter_context(network_namespace(("a1", "b1")))
            self.a = self._start(stack, "a1", 1)
            self.b = self._start(stack, "b1", 2)
            for end in (self.a, self.b):
                end.wait_ready()
            self._stack = stack.pop_all()
        return self

    def _start(self, stack: ExitStack, device: str, device_id: int) -> End:
        end = End(self._namespace, self._folder, device, device_id, self._driver)
        stack.callback(end.kill)
        return end

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def say_hello(self, interval_us: int = 50_000, multiplier: int = 3) -> None:
        """Set hellos at both ends and wait until they have met."""
        for end in (self.a, self.b):
            end.say_hello(interval_us, multiplier)
        self.met()

    def met(self) -> None:
        """Wait until both ends report each other."""
        for end in (self.a, self.b):
            end.wait_for_line("hello from neighbour")

    def set_up(self, device: str, *, is_up: bool) -> None:
        """Set a device up or down."""
        namespaces.call(self._namespace, lambda: ethernet.set_up(device, is_up=is_up))

    @contextmanager
    def dropping(self, device: str) -> Iterator[None]:
        """Drop all incoming frames of a device while the block lasts."""

        def attach() -> DropEverything:
            program = DropEverything(find_device(device), 1)
            program._link(bpf._GENERIC_MODE)
            return program

        program = namespaces.call(self._namespace, attach)
        try:
            yield
        finally:
            program.close()
