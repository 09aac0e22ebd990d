"""Workers that train over one switch, and the controller of their jobs, all as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.settings import AggregationSettings
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program
from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.config import document_of
from dataplane.errors import FabricError
from dataplane.fabric.kernel import HOST_DEVICE, KernelFabric
from dataplane.fabric.kernel.fabric import environment
from dataplane.local.deadline import LocalDeadline, wait_readable
from dataplane.local.endings import read_lines, telling_line, why_ended
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.topology.file import dumps, loads
from dataplane.topology.values import Topology

SWITCH: Final = "s1"
WAIT_S: Final = 60.0


def star(workers: int, rate_bps: int, *, queue_frames: int = 256, collector: str | None = None) -> Topology:
    """Return a topology of hosts h1, h2, ... on one switch, and a collector's host if named."""
    names = [f"h{index + 1}" for index in range(workers)] + ([] if collector is None else [collector])
    hosts = "\n".join(f"  - {{name: {name}, switch: {SWITCH}}}" for name in names)
    watched = "" if collector is None else f"collector: {{host: {collector}}}"
    return loads(f"""
millrace: 1
name: star-{workers}
{watched}
defaults: {{access: {{rate: {rate_bps} bit/s, delay: 0 us, queue_frames: {queue_frames}}}}}
switches: [{{name: {SWITCH}}}]
hosts:
{hosts}
""")


class Agent:
    """A process in a host's namespace that speaks lines of JSON; errors name a host that does not answer in time."""

    def __init__(self, host: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.host, self.process, self.log = host, process, log
        self._buffer = b""

    def tell(self, **words: object) -> None:
        """Send a message."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(words).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self._failure("has ended") from None

    def answer(self, timeout_s: float = WAIT_S) -> dict[str, Any]:
        """Return its next message; raise FabricError, with the reason, if there is none."""
        assert self.process.stdout is not None
        deadline = LocalDeadline(timeout_s, f"an answer of host {self.host}")
        while b"\n" not in self._buffer:
            if not wait_readable(self.process.stdout, deadline):
                raise self._failure(f"no answer for {timeout_s:g} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise self._failure("has ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, timeout_s: float = WAIT_S, **words: object) -> dict[str, Any]:
        """Send a message and return the answer."""
        self.tell(**words)
        return self.answer(timeout_s)

    def close(self) -> None:
        """End the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _failure(self, what: str) -> FabricError:
        lines, status = read_lines(self.log), self.process.poll()
        reason = telling_line(lines) if status is None else why_ended(status, lines)
        return FabricError(f"{self.host}: the agent {what}" + (f": {reason}" if reason else ""))


WINDOW: Final = 32
Answers = dict[int, dict[str, Any]]


class TrainingFabric:
    """A star of workers, running while the `with` block lasts."""

    def __init__(
        self,
        workers: int,
        rate_bps: int,
        *,
        dead_after_s: float = 1.0,
        module: str = "controller.apps.demo.training.worker",
        steps: int = 40,
        patience_s: float = WAIT_S,
    ) -> None:
        """Set up workers that run `module`, train for `steps`, and are given up when silent for too long."""
        self.workers, self._dead_after_ns = workers, int(dead_after_s * NS_PER_S)
        self._module, self.steps = module, steps
        self.patience_s = patience_s
        """Time limit for a silent worker."""
        self.topology = star(workers, rate_bps)
        self.fabric = KernelFabric(self.topology)
        self.service = f"unix:{self.fabric.run_dir}/jobs.sock"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Compiled here, without a deadline on a busy machine; the switch finds it in the cache.
        compile_program(load_program(*reversed(fabric_program(FABRIC_AGGREGATION))), Purpose.FORWARDING)
        with ExitStack() as stack:
            stack.enter_context(self.fabric)
            self._start_controller()
            self._agent = self._start_workers()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._agent.close()
        self._stack.close()

    def begin(self, name: str, *, by_gloo: bool = False, **more: object) -> None:
        """Make workers train, in a job of that name unless by gloo."""
        service = {} if by_gloo else {"service": self.service}
        self._agent.tell(train=name, steps=self.steps, workers=self.workers, **service, **more)

    def fork(self, rank: int) -> None:
        """Restart a worker, in its own process group."""
        self._agent.tell(fork=rank)
        message = self.hear()
        if message != {"rank": rank, "joined": True}:
            raise FabricError(f"worker {rank} did not start again: {message}")

    def restart_workers(self) -> None:
        """Replace all workers by new ones."""
        self._agent.close()
        self._agent = self._start_workers()

    def hear(self) -> dict[str, Any]:
        """Return a worker's next message."""
        return self._agent.answer(self.patience_s)

    def results(self, workers: int) -> Answers:
        """Return the last messages of this many workers."""
        answers = [self.hear() for _ in range(workers)]
        return {answer["rank"]: answer for answer in answers}

    def restart_switch(self, *, after_s: float) -> None:
        """Kill the switch, and start it again after a while, empty."""
        self.fabric.stop_switch(SWITCH, kill=True)
        time.sleep(after_s)
        self.fabric.start_switch(SWITCH)

    def _start_controller(self) -> None:
        topology, settings, log = (self.fabric.run_dir / f"controller.{what}" for what in ("topology", "yaml", "log"))
        topology.write_text(dumps(self.topology), encoding="utf-8")
        wanted = DaemonSettings(
            topology=str(topology),
            switches={SWITCH: self.fabric.p4runtime_address(SWITCH)},
            watches=(),
            aggregation=AggregationSettings(dead_after_ns=self._dead_after_ns),
            jobs=JobSettings(listen=self.service, reconnect_ns=200 * NS_PER_MS, window=WINDOW),
            retry=RetrySettings(longest_wait_ns=200 * NS_PER_MS),
        )
        settings.write_text(yaml.safe_dump(document_of(wanted)), encoding="utf-8")
        command = [sys.executable, "-m", "controller.apps.cli", "controller", "serve", "--settings", str(settings)]
        with log.open("wb") as words:
            self.fabric.run_in("h1", command, stdout=words, stderr=words, env=_environment())
        self.fabric.wait_ready(self.patience_s)

    def _start_workers(self) -> Agent:
        namespaces = [self.fabric.namespace(host.name) for host in self.topology.hosts]
        store = f"tcp://{self.topology.host['h1'].ipv4}:29500"
        command = [sys.executable, "-m", self._module, store, *namespaces]
        log = self.fabric.run_dir / "workers.log"
        with log.open("wb") as words:
            process = self.fabric.run_in(
                "h1", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, env=_environment()
            )
        agent = Agent("h1", process, log)
        for _ in range(self.workers):
            message = agent.answer(self.patience_s)
            if not message.get("joined"):
                raise FabricError(f"a worker did not start: {message}")
        return agent


def _environment() -> dict[str, str]:
    return {**environment(), "GLOO_SOCKET_IFNAME": HOST_DEVICE}
