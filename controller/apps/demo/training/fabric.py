"""Workers that train around one switch, with the controller that looks after their jobs: all as real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

import yaml

from controller.apps.demo.training.star import SWITCH, WAIT_S, Agent, star
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.settings import AggregationSettings
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program
from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.config import document_of
from dataplane.errors import FabricError
from dataplane.fabric.kernel import HOST_DEVICE, KernelFabric
from dataplane.fabric.kernel.fabric import environment
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.topology.file import dumps

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
        # Here, where it may take as long as it takes on a busy machine; the switch finds it in the cache.
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
        """Have workers train, in a job of that name unless it is by gloo."""
        service = {} if by_gloo else {"service": self.service}
        self._agent.tell(train=name, steps=self.steps, workers=self.workers, **service, **more)

    def fork(self, rank: int) -> None:
        """Restart a worker, in its own process group."""
        self._agent.tell(fork=rank)
        said = self.hear()
        if said != {"rank": rank, "joined": True}:
            raise FabricError(f"worker {rank} did not start again: {said}")

    def restart_workers(self) -> None:
        """Have new workers in the place of all."""
        self._agent.close()
        self._agent = self._start_workers()

    def hear(self) -> dict[str, Any]:
        """Return what one worker says next."""
        return self._agent.answer(self.patience_s)

    def results(self, workers: int) -> Answers:
        """Return the last messages of this many workers."""
        found = [self.hear() for _ in range(workers)]
        return {answer["rank"]: answer for answer in found}

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
        command = [sys.executable, "-m", "controller.apps.cli", "controller", "--settings", str(settings)]
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
            said = agent.answer(self.patience_s)
            if not said.get("joined"):
                raise FabricError(f"a worker did not start: {said}")
        return agent


def _environment() -> dict[str, str]:
    return {**environment(), "GLOO_SOCKET_IFNAME": HOST_DEVICE}
