"""A trial of the API: clients and watches over failing networks, and a server that is killed, stopped and misdated.

Afterwards the history of each register must be linearizable, and each watch must have shown all writes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, PodSpec
from controller.common.errors import NotFoundError, StaleError
from dataplane.local.deadline import LocalDeadline
from tests.adversary.histories.clients import NODE, PARITY, Client, Crew, Record, contents, watch
from tests.adversary.histories.linearizability import UndecidedError, violations
from tests.adversary.histories.proxy import Proxy
from tests.adversary.histories.register import Observed, Registers, resolved
from tests.adversary.histories.server import Server
from tests.adversary.histories.watching import Contents, disagreements, problems_of, replayed_of

FAULTS: Final = ("kill", "pause", "part", "stall", "tear", "step")
CLIENTS: Final = 7
REGISTERS: Final = 4
CREW: Final = 4
SELECTING: Final = "selecting"
"""The watch that sees one out of two values."""
_SELECTED: Final = f"{PARITY}=even"
_PAUSE_S: Final = 0.2
_WATCHES: Final = 3
_CAUGHT_UP_S: Final = 60.0
_DAY_NS: Final = 86_400 * 1_000_000_000
_FAULT_S: Final = (0.2, 1.0)
_CALM: Final = (50, 200)
"""Requests that are answered between two faults."""
_CALM_S: Final = 30.0


@dataclass(slots=True)
class Report:
    """Result of a trial; `problems` is empty on success."""

    outcomes: Counter[str] = field(default_factory=Counter)
    events: int = 0
    stretches: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    misdated: bool = False
    """True if the server dated something to another day."""
    problems: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Take what came of another trial, too."""
        self.outcomes += other.outcomes
        self.faults += other.faults
        self.events += other.events
        self.stretches += other.stretches
        self.misdated |= other.misdated
        self.problems += other.problems


class Nemesis:
    """Does to a server and to networks what machines and networks do."""

    def __init__(
        self, server: Server, networks: Sequence[Proxy], rng: random.Random, answered: Callable[[], int]
    ) -> None:
        """`answered` returns how many requests of the clients were answered."""
        self._server, self._networks, self._rng, self._answered = server, networks, rng, answered
        acts = (self._kill, self._pause, self._part, self._stall, self._tear, self._step)
        self._faults: Mapping[str, Callable[[], Awaitable[None]]] = dict(zip(FAULTS, acts, strict=True))

    async def run(self, faults: Sequence[str]) -> None:
        """Inject the faults in turn, each once the last is healed; the clock keeps its last setting."""
        for fault in faults:
            await self._calm()
            await self._faults[fault]()
        await self._calm()

    async def _calm(self) -> None:
        """Wait until clients have got some work done, however busy the machine is."""
        wanted, deadline = self._answered() + self._rng.randint(*_CALM), LocalDeadline(_CALM_S, "a test")
        while self._answered() < wanted and not deadline.has_passed():
            await asyncio.sleep(0.02)

    async def _a_while(self) -> None:
        await asyncio.sleep(self._rng.uniform(*_FAULT_S))

    async def _kill(self) -> None:
        await self._server.kill()
        await self._server.start()

    async def _pause(self) -> None:
        self._server.pause()
        await self._a_while()
        self._server.go_on()

    async def _part(self) -> None:
        network = self._rng.choice(self._networks)
        network.part()
        await self._a_while()
        network.heal()

    async def _stall(self) -> None:
        network = self._rng.choice(self._networks)
        network.stall()
        await self._a_while()
        network.heal()

    async def _tear(self) -> None:
        for network in self._networks:
            network.tear(self._rng)
        await self._a_while()
        for network in self._networks:
            network.heal()

    async def _step(self) -> None:
        self._server.step(self._rng.choice((-400, -1, 1, 400)) * _DAY_NS)
        await self._a_while()


class Trial:
    """Clients and watches of one server; registers and crew have unique names."""

    def __init__(self, server: Server, rng: random.Random) -> None:
        self._server, self._rng, self._record = server, rng, Record()
        prefix = f"t{rng.getrandbits(32):x}"
        self._registers = [f"{prefix}-r{number}" for number in range(REGISTERS)]
        self._crew = [f"{prefix}-c{number}" for number in range(CREW)]

    async def run(self, faults: Sequence[str]) -> Report:
        """Run clients while faults happen in random order; return the evaluation of their records."""
        order = self._rng.sample(faults, len(faults))
        async with ApiClient(Place(self._server.socket)) as direct:
            await _create_node(direct)
            async with AsyncExitStack() as stack:
                networks = [await stack.enter_async_context(Proxy(self._server.socket)) for _ in range(2)]
                places = [Place(self._server.socket), *(Place(network.url) for network in networks)]
                apis = [await stack.enter_async_context(_client(server)) for server in places]
                nemesis = Nemesis(self._server, networks, self._rng, lambda: self._record.answered)
                ends = await self._work(direct, apis, nemesis.run(order))
            report = self._checked(*ends)
            report.misdated = await _is_misdated(direct)
            await _clean(direct)
        report.faults.update(order)
        return report

    async def _work(
        self, direct: ApiClient, apis: Sequence[ApiClient], nemesis: Coroutine[Any, Any, None]
    ) -> tuple[Contents, Contents]:
        """Return the final contents, and those that the selector matches."""
        stop, crew = asyncio.Event(), Crew(apis[0], self._record, self._crew)
        await Crew(direct, self._record, self._crew).create()
        watching = [asyncio.create_task(watch(f"w{number}", api, self._record)) for number, api in enumerate(apis)]
        watching.append(asyncio.create_task(watch(SELECTING, apis[2], self._record, labels=_SELECTED)))
        working = [asyncio.create_task(crew.run(stop))]
        for number in range(CLIENTS):
            rng = random.Random(self._rng.getrandbits(32))
            client = Client(f"k{number}", apis[number % len(apis)], self._record, self._registers, rng)
            working.append(asyncio.create_task(client.run(stop)))
        try:
            await nemesis
            stop.set()
            await asyncio.gather(*working)
            ends = await self._caught_up(direct)
            for task in watching:
                if task.done():
                    task.result()  # raises: a watch never ends of itself
            return ends
        finally:
            for task in [*working, *watching]:
                task.cancel()
            await asyncio.gather(*working, *watching, return_exceptions=True)

    async def _caught_up(self, direct: ApiClient) -> tuple[Contents, Contents]:
        """Return the contents once all watches have caught up, or after a limit.

        Requests whose answers were lost may still arrive.
        """
        deadline = LocalDeadline(_CAUGHT_UP_S, "a test")
        while True:
            final, selected = await contents(direct), await contents(direct, _SELECTED)
            ends = {name: replayed_of(stretches) for name, stretches in self._record.watches.items()}
            is_told = [end == (selected if name == SELECTING else final) for name, end in ends.items()]
            if all(is_told) or deadline.has_passed():
                self._record.is_caught_up = all(is_told)
                return final, selected
            await asyncio.sleep(0.05)

    def _checked(self, final: Contents, selected: Contents) -> Report:
        record = self._record
        report = Report(outcomes=record.outcomes, problems=record.problems)
        try:
            # A watch of everything that never had to list again.
            is_complete = any(len(record.watches[f"w{number}"]) == 1 for number in range(_WATCHES))
            observed = Observed(record.seen, record.deletions, is_complete and record.is_caught_up)
            violated = violations(resolved(record.history, observed), Registers())
            report.problems += [str(violation) for violation in violated]
        except UndecidedError as error:
            report.problems.append(str(error))
        for name, stretches in record.watches.items():
            is_selecting = name == SELECTING
            report.problems += problems_of(
                name, stretches, None if is_selecting else record.writes, selected if is_selecting else final
            )
            report.stretches += len(stretches)
            report.events += sum(len(stretch.events) for stretch in stretches)
        report.problems += disagreements(stretches for name, stretches in record.watches.items() if name != SELECTING)
        return report


def _client(server: Place) -> ApiClient:
    """Return a client without retries whose watches reconnect quickly."""
    return ApiClient(server, tries=1, sleep=lambda seconds: asyncio.sleep(min(seconds, _PAUSE_S)))


async def _create_node(api: ApiClient) -> None:
    with suppress(StaleError):
        node = Node(metadata=Metadata(name=NODE), spec=NodeSpec(hardware=Hardware(cpu_milli=1000)))
        await api.of(Node).create(node)


async def _is_misdated(api: ApiClient) -> bool:
    """Return whether the server's clock is another one than ours."""
    spec = PodSpec(containers=(Container(name="main", image="x"),))
    pod = await api.of(Pod).create(Pod(metadata=Metadata(name="dated"), spec=spec))
    return abs(pod.metadata.created_ns - time.time_ns()) > _DAY_NS // 2


async def _clean(api: ApiClient) -> None:
    """Remove all pods and release their nodes."""
    while pods := (await api.of(Pod).list()).items:
        for pod in pods:
            # What was on its way when the clients stopped may have been done since.
            with suppress(NotFoundError, StaleError):
                await api.of(Pod).delete(pod.metadata.name)
                if pod.status.node is None:
                    continue
                await api.release(ReleaseRequest(releases=(Release(pod=pod.metadata.name),)))
