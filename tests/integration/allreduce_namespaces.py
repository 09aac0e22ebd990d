"""Workers in network namespaces around one switch that adds up, over cables that are shaped in both directions.

    with AggregationFabric(workers=4, rate_bps=100_000_000) as fabric:
        job = fabric.start_job()
        agent = fabric.start_agent("h1", "tests.integration.allreduce_agent")
        agent.ask(engine=fabric.engine_settings(job, "h1"))

The switch is the built-in compiled one on veth pairs with fabric_aggregation; its tables are written over P4Runtime.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from pyroute2 import IPRoute

from collectors.reference.builder import PlainStateBuilder
from controller.apps.demo.training.fabric import SWITCH, WAIT_S, Agent, star
from controller.network.aggregation.jobs import RunningJob
from controller.network.aggregation.settings import AggregationSettings
from controller.network.aggregation.tables import AggregationTables
from controller.network.intents import Worker
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.reconcile import diff
from controller.network.tables.aggregation import clearing, parent_of
from controller.network.tables.entities import Entities
from dataplane.allreduce.engine import EngineSettings
from dataplane.clock import MonotonicClock
from dataplane.errors import FabricError
from dataplane.fabric.kernel import HOST_DEVICE, KernelFabric, switch_device
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.topology.addressing import switch_ipv4
from tests.controller.network.base_tables import base_entities
from tests.integration.virtual_allreduce import FIRST_PORT

ROOT = Path(__file__).parents[2]
WINDOW = 128
BURST_BYTES = 16 << 10
QUEUE_BYTES = 512 << 10
_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_ALLOWED_CONGESTION_CONTROL = _CONGESTION_CONTROL.with_name("tcp_allowed_congestion_control")


@dataclass(frozen=True, slots=True)
class Wire:
    """Traffic counters of a host's device."""

    sent_frames: int
    sent_bytes: int
    received_frames: int
    received_bytes: int

    def __sub__(self, before: Wire) -> Wire:
        return Wire(
            self.sent_frames - before.sent_frames,
            self.sent_bytes - before.sent_bytes,
            self.received_frames - before.received_frames,
            self.received_bytes - before.received_bytes,
        )


class AggregationFabric:
    """A star in the kernel while the `with` block lasts; needs root. Raises MillraceError if it cannot be built."""

    def __init__(self, workers: int, rate_bps: int, *, queue_frames: int = 256, shaped: bool = True) -> None:
        self.topology = star(workers, rate_bps, queue_frames=queue_frames)
        self.hosts = tuple(f"h{index + 1}" for index in range(workers))
        self.rate_bps = rate_bps
        self.fabric = KernelFabric(self.topology)
        self._shaped = shaped
        self._tables = AggregationTables(self.topology, AggregationSettings())
        self._base = base_entities(self.topology)[SWITCH]
        self._state = PlainStateBuilder(self.topology, MonotonicClock())
        self._schema = load_schema(*fabric_program(FABRIC_AGGREGATION))
        self._held: Entities = {}
        self._agents: list[Agent] = []
        # One event loop for all of gRPC's life: its poller is the process's.
        self._runner = asyncio.Runner()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Compiled here, without a time limit; the switch finds it in the cache.
        compile_program(load_program(*reversed(fabric_program(FABRIC_AGGREGATION))), Purpose.FORWARDING)
        with ExitStack() as stack:
            stack.enter_context(self._runner)
            stack.enter_context(self.fabric)
            if self._shaped:
                self._shape()
            self.fabric.wait_ready(WAIT_S)
            self._runner.run(self._write(install=True))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self._agents:
            agent.close()
        self._stack.close()

    # jobs

    def start_job(
        self,
        hosts: tuple[str, ...] = (),
        *,
        window: int = WINDOW,
        capacity: int | None = None,
        server: str | None = None,
    ) -> RunningJob:
        """Set up a job over some or all hosts in the switch; `server` is the main server's host."""
        members = hosts or self.hosts
        workers = [Worker(host, self.port(host)) for host in members]
        most = len(members) if capacity is None else capacity
        main = None if server is None else Worker(server, self.port(server))
        job = self._tables.jobs.create(workers, self._state.snapshot(), window=window, capacity=most, server=main)
        self.write()
        return job

    def leave(self, job: RunningJob, host: str) -> RunningJob:
        """Remove a worker from the next epoch on."""
        changed = self._tables.jobs.leave(job.number, host)
        self.write()
        return changed

    def join(self, job: RunningJob, host: str) -> RunningJob:
        """Add a worker from the next epoch on."""
        changed = self._tables.jobs.join(job.number, Worker(host, self.port(host)))
        self.write()
        return changed

    def end_job(self, job: RunningJob) -> None:
        """Remove a job from the switch."""
        self._tables.jobs.end(job.number)
        self.write()

    def engine_settings(self, job: RunningJob, host: str) -> EngineSettings:
        """Return the settings of a job's worker; its addresses are those of its namespace."""
        placed = job.placed
        root = self.topology.switch[parent_of(placed.tree, host)]
        return EngineSettings(
            aggregator=str(switch_ipv4(root.node_id)),
            job=job.number,
            window=placed.job.window,
            capacity=placed.job.capacity,
            epoch=job.members.epoch,
            nonce=placed.job.nonce,
            contributors=len(job.members.workers),
            local=(str(self.topology.host[host].ipv4), self.port(host)),
        )

    def write(self) -> None:
        """Reconcile the switch with the jobs; return once it has acknowledged."""
        self._runner.run(self._write())

    def restart_switch(self, *, refill: bool = True, without: RunningJob | None = None) -> None:
        """Kill the switch and start it again; empty unless filled on request, and without any job ending."""
        self.fabric.stop_switch(SWITCH, kill=True)
        if without is not None:
            self._tables.jobs.end(without.number)
        self.fabric.start_switch(SWITCH)
        self.fabric.wait_ready(WAIT_S)
        self._held = {}
        if refill:
            self._runner.run(self._write(install=True))

    def port(self, host: str) -> int:
        return FIRST_PORT + self.hosts.index(host)

    async def _write(self, *, install: bool = False) -> None:
        target = Target(SWITCH, self.fabric.p4runtime_address(SWITCH), self.topology.switch[SWITCH].node_id)
        session = GrpcSession(target, self._schema, timeout_s=WAIT_S)
        try:
            await session.connect()
            if install:
                await session.install_pipeline()
            jobs = self._tables.jobs
            jobs.held(SWITCH, self._held)
            for number, block in jobs.to_clear(SWITCH).items():
                await session.write(tuple(clearing(block)))
                jobs.cleared(number, SWITCH)
            wanted = {**self._base, **self._tables.wanted(SWITCH)}
            for batch in diff(wanted, self._held):
                await session.write(batch)
            self._held = wanted
        finally:
            await session.close()

    # hosts

    def start_agent(self, host: str, module: str, *arguments: str, env: dict[str, str] | None = None) -> Agent:
        """Start `python -m module` in a host's namespace, which answers lines of JSON with lines of JSON."""
        log = self.fabric.run_dir / f"{host}.agent.log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": HOST_DEVICE, **(env or {})}
        with log.open("ab") as words:
            process = self.fabric.run_in(
                host,
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env=environment,
            )
        agent = Agent(host, process, log)
        self._agents.append(agent)
        return agent

    @staticmethod
    def allowed_congestion_controls() -> tuple[str, ...]:
        """Return the congestion controls that this machine allows as a namespace's default."""
        return tuple(_ALLOWED_CONGESTION_CONTROL.read_text(encoding="ascii").split())

    def set_congestion_control(self, name: str) -> None:
        """Set the congestion control of new TCP connections in all hosts; raise FabricError."""
        for host in self.hosts:
            try:
                self.fabric.call_in(host, partial(_CONGESTION_CONTROL.write_text, name, encoding="ascii"))
            except OSError as error:
                allowed = _ALLOWED_CONGESTION_CONTROL.read_text(encoding="ascii").strip()
                raise FabricError(
                    f"TCP congestion control {name}: {error.strerror}; in namespaces this machine allows {allowed}"
                    f" (net.ipv4.tcp_allowed_congestion_control; it may want modprobe tcp_{name} first)"
                ) from error

    def wire(self, host: str) -> Wire:
        """Return the counters of a host's device."""
        return self.fabric.call_in(host, _read_wire)

    def shaped_rate_bps(self, node: str, device: str) -> int | None:
        """Return the shaped rate of a node's device, None if it is not shaped."""
        return self.fabric.call_in(node, partial(_tbf_rate_bps, device))

    def _shape(self) -> None:
        """Shape both ends of every host's cable with TBF: one sends up, the other down."""
        for host in self.hosts:
            port = self.topology.attachment[host].port
            for node, device in ((host, HOST_DEVICE), (SWITCH, switch_device(port))):
                self.fabric.call_in(node, partial(_add_tbf, device, self.rate_bps))


def _add_tbf(device: str, rate_bps: int) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        netlink.tc("add", "tbf", index, 0x10000, rate=rate_bps // 8, burst=BURST_BYTES, limit=QUEUE_BYTES)


def _tbf_rate_bps(device: str) -> int | None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        for discipline in netlink.get_qdiscs(index):
            if discipline.get_attr("TCA_KIND") == "tbf":
                rate: int = discipline.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"]
                return 8 * rate
    return None


def _read_wire() -> Wire:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=HOST_DEVICE)[0]
        stats = netlink.get_links(index)[0].get_attr("IFLA_STATS64")
    return Wire(stats["tx_packets"], stats["tx_bytes"], stats["rx_packets"], stats["rx_bytes"])
