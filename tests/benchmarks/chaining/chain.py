"""The chain as processes: a sender, `millrace collector`, `paths serve` and `controller`, and sinks for switches.

All daemons have default settings but for topology, ports and addresses. `running` starts them in a folder; what comes
of route sets is fed back, so that reports of a flow that was moved come from its new path.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from controller.network.intents import RouteSet
from dataplane.local.deadline import LocalDeadline
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey
from tests.benchmarks.chaining import processes, sender
from tests.benchmarks.chaining.events import PATIENCE_S, QUIET_S, Event, Steering, next_event
from tests.benchmarks.chaining.flows import Flows, Mix, make_flows
from tests.benchmarks.chaining.flows import Path as FlowPath
from tests.benchmarks.chaining.processes import Daemon, Usage
from tests.benchmarks.chaining.sender import SenderSettings
from tests.benchmarks.chaining.sinks import SinkProcess, sinks
from tests.benchmarks.chaining.watching import Clients, clients
from tests.free_ports import free_ports

TOPOLOGIES = {20: "leaf-spine:spines=4,leaves=16,hosts=16", 180: "fat-tree:k=12", 980: "fat-tree:k=28"}
SMALL = "leaf-spine:spines=2,leaves=3,hosts=4"
"""For a test that the parts work."""
_ANSWER_S = 30.0
_TRICKLE_PER_S = 500.0
_FLUSH_S = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic and reports of the fabric."""

    topology: str
    flows: int
    rate: float
    mix: Mix = Mix.UNIFORM
    seed: int = 1
    precedes: bool = False
    """Daemons go before other sessions of the machine, whose work disturbs the measurement less then; needs root."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Datagrams that the kernel took from the sender until a time, monotonic; those that should not be apart."""

    at_s: float
    reports: int
    bad: int


class SenderProcess:
    """The sender, and orders to it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._congested_ns: asyncio.Queue[int] = asyncio.Queue()
        self._sent: asyncio.Queue[Sent] = asyncio.Queue()
        self._asked = 0
        assert process.stdout is not None
        self._answers = process.stdout

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def read(self) -> None:
        """Read answers until it ends."""
        async for line in self._answers:
            answer = json.loads(line)
            if "congested_ns" in answer:
                self._congested_ns.put_nowait(answer["congested_ns"])
            elif "asked" in answer:
                self._sent.put_nowait(Sent(answer["at_s"], answer["sent"], answer["sent_bad"]))

    def order(self, **values: object) -> None:
        """Send an order."""
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(values) + "\n").encode())

    async def congest(self, link: LinkKey) -> int:
        """Fill a link's queue; return when the first report of that was sent, in monotonic ns."""
        self.order(congested=[[link.src, link.dst]])
        return await asyncio.wait_for(self._congested_ns.get(), _ANSWER_S)

    def relieve(self) -> None:
        """Empty all queues."""
        self.order(congested=[])

    async def sent(self) -> Sent:
        """Return its counts so far."""
        self._asked += 1
        self.order(ask=self._asked)
        return await asyncio.wait_for(self._sent.get(), _ANSWER_S)


@dataclass(slots=True)
class Chain:
    """A chain that runs."""

    load: Load
    flows: Flows
    daemons: dict[str, Daemon]
    sender: SenderProcess
    clients: Clients
    steering: Steering
    events: list[Event] = field(default_factory=list)
    switches: SinkProcess | None = None
    routes: RouteSet | None = None
    """The newest set."""
    route_sets: int = 0

    async def follow(self) -> None:
        """Take route sets as they come, until cancelled, over restarts of the path server."""
        async for routes in self.clients.routes.routes():
            at_ns = time.monotonic_ns()
            self.routes, self.route_sets = routes, self.route_sets + 1
            moved, followed = self.steering.take(routes)
            if self.events:
                self.events[-1].take(moved, at_ns)
            if followed:
                self.sender.order(routes=[(flow, self.flows.flows[flow].path) for flow in followed])

    async def event(self, rng: np.random.Generator, deadline_s: float | None = None) -> Event:
        """Cause one congestion, and the quiet after it; with a deadline it lasts until seen, at most that long.

        Such a deadline is stretched on a busy machine, and the time of an event without one is not.
        """
        event = next_event(self.flows, rng, self.events[-1] if self.events else None)
        self.events.append(event)
        event.begun_ns = await self.sender.congest(event.link)
        if deadline_s is None:
            await asyncio.sleep(PATIENCE_S)
        else:
            event.patience_s, deadline = math.inf, LocalDeadline(deadline_s, "an event")
            while event.seen_ns is None and not deadline.has_passed():
                await asyncio.sleep(deadline.step_s)
        self.sender.relieve()
        await asyncio.sleep(QUIET_S)
        return event

    def usage(self) -> dict[str, Usage]:
        """Return what each process has used."""
        pids = {name: daemon.pid for name, daemon in self.daemons.items()} | {"sender": self.sender.pid}
        return {name: Usage.of(pid) for name, pid in pids.items()}

    async def settled_counters(self) -> tuple[Sent, dict[str, int]]:
        """Stop sending; return the sender's counts, and the collector's counters once nothing is in flight.

        Linux reports a socket's lost datagrams with the next one that it delivers: send a few more slowly.
        """
        self.sender.order(rate=_TRICKLE_PER_S, bad=sender.Bad.NONE)
        counters: dict[str, int] = {}
        while True:
            await asyncio.sleep(_FLUSH_S)
            self.sender.order(rate=_TRICKLE_PER_S if not counters else 0)
            sent, counts = await self.sender.sent(), (await self.clients.collector.fresh()).counters
            if counters and counts.get("reports") == counters.get("reports"):
                return sent, dict(counts)
            counters = dict(counts)


@asynccontextmanager
async def running(
    load: Load,
    folder: Path,
    *,
    controller: bool = True,
    lasting: bool = False,
    paths: Sequence[FlowPath] | None = None,
) -> AsyncIterator[Chain]:
    """Run a chain in a folder while the block lasts; ProcessError for a daemon that does not start.

    The routes of a lasting one outlive its path server. `paths` are those that flows take at first, by their numbers.
    """
    topology = load_topology(load.topology)
    flows = make_flows(topology, load.flows, load.mix, load.seed)
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        daemons = [
            processes.collector(load.topology, folder, port),
            processes.path_server(load.topology, folder, lasting=lasting),
        ]
        switches = None
        if controller:
            switches = stack.enter_context(sinks(load.topology, folder / "s"))
            daemons.append(processes.controller(load.topology, folder, switches.switches))
        for daemon in daemons:
            daemon.precedes = load.precedes
            stack.enter_context(daemon)
        settings = SenderSettings(load.topology, load.flows, load.mix, load.seed, port, load.rate)
        process = await stack.enter_async_context(_sender(settings))
        asked = await stack.enter_async_context(clients(folder, controller=controller))
        if paths is not None:
            for number, path in enumerate(paths):
                flows.reroute(number, path)
            process.order(routes=list(enumerate(paths)))
        named = {daemon.name: daemon for daemon in daemons}
        chain = Chain(load, flows, named, process, asked, Steering(flows), switches=switches)
        tasks = [asyncio.create_task(chain.follow()), asyncio.create_task(process.read())]
        try:
            yield chain
        finally:
            await _cancel(tasks)


@asynccontextmanager
async def _sender(settings: SenderSettings) -> AsyncIterator[SenderProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, sender.__file__, stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(sender.line_of(settings).encode())
        if "ready" not in json.loads(await asyncio.wait_for(process.stdout.readline(), processes.START_S)):
            raise processes.ProcessError("the sender did not start")
        yield SenderProcess(process)
    finally:
        process.stdin.close()
        await process.wait()


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        if not task.done():
            task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result
