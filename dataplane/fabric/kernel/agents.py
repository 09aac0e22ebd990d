"""Host agents of a kernel fabric, started one by one and released together once all of them are ready."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from dataplane.errors import FabricError
from dataplane.fabric.agent import READY, AgentPlan, Arrival, plan_flow, read_load, read_log, replay
from dataplane.fabric.hosts import Flow, Receiver
from dataplane.fabric.kernel.fabric import KernelFabric, environment
from dataplane.fabric.load import SentLoad
from dataplane.local.endings import read_lines, telling_line, why_ended

_MODULE = "dataplane.fabric.agent"


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    plan: AgentPlan
    said: bytes = b""


class HostAgents:
    """The agents of some of a fabric's hosts, as a context manager; processes end with the fabric at the latest.

    Call `start` for each host, poll `waiting` until it is empty, call `begin`, poll `running` until it is empty, then
    read what was received and sent.
    """

    def __init__(self, fabric: KernelFabric, *, forget: bool = False) -> None:
        """With `forget`, arrivals are not recorded: for agents that never end."""
        self._fabric, self._forget = fabric, forget
        self._agents: dict[str, _Running] = {}

    def __enter__(self) -> HostAgents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self._agents.values():
            for pipe in (agent.process.stdin, agent.process.stdout):
                if pipe is not None:
                    pipe.close()

    def start(
        self, host: str, *, send: tuple[Flow, ...], receive_ports: tuple[int, ...], end_ns: int, seed: int
    ) -> None:
        """Start a host's agent; `end_ns` is in run time."""
        plan = AgentPlan(
            end_ns=end_ns,
            seed=seed,
            log=os.devnull if self._forget else str(self._file(host, "flows")),
            load=str(self._file(host, "load")),
            send=tuple(plan_flow(flow) for flow in send),
            receive_ports=receive_ports,
        )
        # JSON is valid YAML and takes a hundredth of the time to write.
        file = self._file(host, "plan")
        file.write_bytes(msgspec.json.encode(plan))
        with self._log(host).open("wb") as log:
            process = self._fabric.run_in(
                host,
                [sys.executable, "-m", _MODULE, str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
            )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._agents[host] = _Running(process, plan)

    def waiting(self) -> tuple[str, ...]:
        """Return the hosts whose agents are not ready; raise FabricError, with its last output, if one has ended."""
        for host, agent in self._agents.items():
            assert agent.process.stdout is not None
            agent.said += agent.process.stdout.read() or b""
            if agent.process.poll() is not None:
                raise self._failure(host)
        return tuple(host for host, agent in self._agents.items() if agent.said.split() != [READY.encode()])

    def begin(self, origin_ns: int) -> None:
        """Start all agents: run time is zero at `origin_ns` of the machine's monotonic clock."""
        for host, agent in self._agents.items():
            assert agent.process.stdin is not None
            try:
                with agent.process.stdin as start:
                    start.write(b"%d\n" % origin_ns)
            except OSError as error:
                raise self._failure(host) from error

    def running(self) -> tuple[str, ...]:
        """Return the hosts whose agents still run; raise FabricError, with its last output, for one that failed."""
        for host, agent in self._agents.items():
            if agent.process.poll():
                raise self._failure(host)
        return tuple(host for host, agent in self._agents.items() if agent.process.returncode is None)

    def receivers(self) -> dict[str, Receiver]:
        """Return the receiver of each host, after the end."""
        return {host: replay(Path(agent.plan.log)) for host, agent in self._agents.items()}

    def arrivals(self, host: str) -> list[Arrival]:
        """Return a host's arrivals in time order, after the end; empty for a host without an agent."""
        agent = self._agents.get(host)
        return [] if agent is None else list(read_log(Path(agent.plan.log)))

    def loads(self) -> dict[int, SentLoad]:
        """Return the load sent per flow, by flow number, after the end."""
        totals: dict[int, SentLoad] = {}
        for agent in self._agents.values():
            totals |= read_load(Path(agent.plan.load))
        return totals

    def _failure(self, host: str) -> FabricError:
        status = self._agents[host].process.poll()
        lines = read_lines(self._log(host))
        # One whose pipe has just closed may not have ended yet.
        reason = telling_line(lines) or "it closed its input" if status is None else why_ended(status, lines)
        return FabricError(f"host {host}: its agent: {reason}")

    def _file(self, host: str, suffix: str) -> Path:
        return self._fabric.run_dir / f"{host}.{suffix}"

    def _log(self, host: str) -> Path:
        return self._fabric.run_dir / f"agent-{host}.log"
