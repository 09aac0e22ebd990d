"""The daemon over real switches' P4Runtime service, with in-process sessions for speed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby

import pytest
from finsy import P4Schema

from controller.common.errors import ControllerError, PathError, SessionError
from controller.network.daemon import Daemon
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.features import Features
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.owners.telemetry import longest_flight_ns
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import Bundling, OnLearned, fabric_program, load_schema
from controller.network.reconcile import diff
from controller.network.status.values import SwitchProblem
from controller.network.tables.base import WATCH_ALL
from controller.network.tables.entities import Batch, Entity, EntityKey, same
from controller.network.tables.sources import RoutedNetworks
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.tables.telemetry.reporting import NO_REPORTING
from dataplane.clock import VirtualClock
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.values import Topology

TURNS = 5000
RETRY = RetrySettings(drain_ns=0)
LONG_S = 77.0
"""A wait that lasts until `Lab.patience` is set."""


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    """Return the fabric program."""
    return load_schema(*fabric_program())


@dataclass
class FakeLink:
    """An asynchronous session over an in-process one that can be cut."""

    inner: InProcessSession
    lab: Lab
    pulled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def switch(self) -> str:
        return self.inner.switch

    async def install_pipeline(self) -> bool:
        return self.inner.install_pipeline()

    async def read(self) -> dict[EntityKey, Entity]:
        self.lab.reading.append(self.switch)
        self.lab.most_reading = max(self.lab.most_reading, len(self.lab.reading))
        try:
            await (asyncio.Event().wait() if self.switch in self.lab.hung else asyncio.sleep(0))
        finally:
            self.lab.reading.remove(self.switch)
        self._check("read")
        return self.inner.read()

    async def write(self, batch: Batch) -> None:
        await asyncio.sleep(0)
        self._check("write")
        for refuse in self.lab.refuse:
            if (self.switch, refuse) == (self.switch, next((u.key.table for u in batch), "")):
                raise SessionError(self.switch, "write", "no room", code="RESOURCE_EXHAUSTED", refused=(0,))
        self.lab.written.append((self.switch, batch))
        self.inner.write(batch)

    async def packets(self, counter: str) -> dict[EntityKey, int]:
        await asyncio.sleep(0)
        self._check("read")
        if self.switch in self.lab.deaf:
            raise SessionError(self.switch, "read", "counters are not to be had")
        return self.inner.packets(counter)

    async def learn(self, digest: str, bundling: Bundling, on_learned: OnLearned) -> None:
        await asyncio.sleep(0)
        self.inner.learn(digest, bundling, on_learned)

    async def wait_lost(self) -> SessionError:
        await self.pulled.wait()
        return SessionError(self.switch, "listen", "unplugged")

    def _check(self, doing: str) -> None:
        if self.pulled.is_set():
            raise SessionError(self.switch, doing, "unplugged", code="UNAVAILABLE")


@dataclass
class Lab:
    """Four switches that can be restarted and disconnected, and can refuse writes."""

    topology: Topology
    schema: P4Schema
    cores: dict[str, P4RuntimeCore] = field(default_factory=dict)
    links: dict[str, FakeLink] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    refuse: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)
    reading: list[str] = field(default_factory=list)
    most_reading: int = 0
    patience: asyncio.Event = field(default_factory=asyncio.Event)
    written: list[tuple[str, Batch]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        for node in self.topology.switches:
            self.restart(node.name)

    def restart(self, name: str) -> None:
        """Replace a switch by an empty one and cut its session."""
        node = self.topology.switch[name]
        switch = Switch(node.node_id, [PortSettings(number) for number in range(1, 5)], VirtualClock())
        self.cores[name] = P4RuntimeCore(switch)
        self.unplug(name)

    def unplug(self, name: str) -> None:
        if name in self.links:
            self.links[name].pulled.set()

    @asynccontextmanager
    async def connect(self, name: str) -> AsyncIterator[FakeLink]:
        if name in self.down:
            raise SessionError(name, "connect", "nobody there", code="UNAVAILABLE")
        node = self.topology.switch[name]
        inner = InProcessSession(name, node.node_id, self.cores[name], self.schema)
        inner.become_primary()
        self.links[name] = FakeLink(inner, self)
        try:
            yield self.links[name]
        finally:
            inner.close()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await (self.patience.wait() if seconds == LONG_S else asyncio.sleep(0))

    def tables(self, name: str) -> dict[EntityKey, Entity]:
        return self.links[name].inner.read()


@dataclass
class Running:
    """A daemon with its lab and its source of routes."""

    lab: Lab
    daemon: Daemon
    source: asyncio.Queue[RouteSet]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the daemon work until a condition holds."""
        for _ in range(TURNS):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError(f"never: {self.daemon.status()}")

    async def settle(self, version: int | None = None) -> None:
        await self.until(lambda: self.daemon.status().settled and self.daemon.status().wanted_version == version)
        for name in self.lab.topology.switch:
            held, believed = self.lab.tables(name), self.daemon.coordinator.held(name)
            assert held.keys() == believed.keys()
            assert all(same(held[key], believed[key]) for key in held)

    def flow_switches(self) -> str:
        """Return the switches with explicit paths."""
        return "".join(
            name
            for name in self.daemon.status().live
            if any(key.table == "ipv4_flow_paths" for key in self.lab.tables(name))
        )


def routes(version: int, *paths: str) -> RouteSet:
    """Return the flow from ha to hd on a path."""
    return RouteSet(version, tuple(Route(FlowSpec("ha", "hd"), tuple(path)) for path in paths))


async def drain(source: asyncio.Queue[RouteSet]) -> AsyncIterator[RouteSet]:
    """Yield the items of a queue."""
    while True:
        yield await source.get()


@asynccontextmanager
async def running(lab: Lab, retry: RetrySettings = RETRY, features: Features | None = None) -> AsyncIterator[Running]:
    """Run a daemon over a lab."""
    source: asyncio.Queue[RouteSet] = asyncio.Queue()
    daemon = Daemon(
        Features(lab.topology) if features is None else features,
        lab.connect,
        drain(source),
        lab.clock,
        retry=retry,
        rng=random.Random(1),
        sleep=lab.sleep,
    )
    task = asyncio.create_task(daemon.run())
    try:
        yield Running(lab, daemon, source)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()


@pytest.fixture
def lab(diamond: Topology, schema: P4Schema) -> Lab:
    """Return four switches without a program."""
    return Lab(diamond, schema)


def play(scene: Awaitable[None]) -> None:
    """Run a scene on an event loop of its own."""

    async def whole() -> None:
        await scene

    asyncio.run(whole())


def test_every_switch_is_filled_and_routes_follow(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            await run.settle()
            assert run.flow_switches() == ""
            run.source.put_nowait(routes(1, "abd"))
            await run.settle(1)
            assert run.flow_switches() == "abd"
            lab.written.clear()
            run.source.put_nowait(routes(2, "acd"))
            await run.settle(2)
            assert [name for name, _ in lab.written] == ["c", "a", "b"]

    play(scene())


def test_restarted_switch_is_refilled_and_others_untouched(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            run.source.put_nowait(routes(1, "abd"))
            await run.settle(1)
            before = lab.tables("b")
            lab.written.clear()
            lab.restart("b")
            await run.until(lambda: not run.daemon.status().settled)
            await run.settle(1)
            assert lab.tables("b").keys() == before.keys()
            assert {name for name, _ in lab.written} == {"b"}

    play(scene())


def test_a_daemon_that_restarts_rewrites_nothing(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            run.source.put_nowait(routes(1, "abd"))
            await run.settle(1)
        lab.written.clear()
        async with running(lab) as run:
            await run.until(lambda: len(run.daemon.status().live) == 4)
            assert run.flow_switches() == "abd"
            run.source.put_nowait(routes(5, "abd"))
            await run.settle(5)
            assert lab.written == []

    play(scene())


def test_new_mark_is_written_between_old_and_new_watches(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            run.source.put_nowait(RouteSet(1, ()))
            await run.settle(1)
            lab.written.clear()
            lab.waits.clear()
            run.daemon.configure(WATCH_ALL, NO_REPORTING, IntDomain(udp_port=5599))
            await run.settle(1)
            about = [
                (batch[0].key.table.removeprefix("ipv4_").removeprefix("ipv6_"), batch[0].verb)
                for _, batch in lab.written
            ]
            order = [what for what, _ in groupby(about)]
            assert order == [("watchlist", "delete"), ("int_marker", "modify"), ("watchlist", "insert")]
            assert lab.waits == [longest_flight_ns(lab.topology) / 1e9]

    play(scene())


def test_a_mark_that_a_switch_refuses_leaves_telemetry_as_it_was(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            run.source.put_nowait(RouteSet(1, ()))
            await run.settle(1)
            before = {name: lab.tables(name) for name in lab.topology.switch}
            lab.refuse.add("int_marker")
            run.daemon.configure((Watch(sample_every=7),), NO_REPORTING, IntDomain(udp_port=5599))
            await run.settle(1)
            for name, tables in before.items():
                assert diff(tables, lab.tables(name)) == []
            assert "telemetry settings rolled back: switch" in caplog.text

    play(scene())


def test_routed_networks_change_live_and_wrong_ones_do_not(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            run.source.put_nowait(RouteSet(1, ()))
            await run.settle(1)
            lab.written.clear()
            behind = RoutedNetworks("ha", ("172.16.0.0/12",))
            run.daemon.configure(WATCH_ALL, NO_REPORTING, DEFAULT_DOMAIN, (behind,))
            await run.settle(1)
            run.daemon.configure(WATCH_ALL, NO_REPORTING, DEFAULT_DOMAIN)
            with pytest.raises(ControllerError, match="routed_networks: topology diamond has no host 'hz'"):
                run.daemon.configure((), NO_REPORTING, DEFAULT_DOMAIN, (RoutedNetworks("hz", ()),))
            await run.settle(1)
            assert [(switch, [str(update) for update in batch]) for switch, batch in lab.written] == [
                ("a", ["insert entry ipv4_sources ingress_port=0x1 src_addr=0xac100000/0xc"])
            ]

    play(scene())


def test_a_dead_switch_holds_up_only_the_flows_that_need_it(lab: Lab) -> None:
    async def scene() -> None:
        lab.down.add("b")
        async with running(lab) as run:
            run.source.put_nowait(RouteSet(1, (*routes(1, "abd").routes, Route(FlowSpec("ha", "hc"), ("a", "c")))))
            # d is the flow's last switch, so its entry is safe whatever the others do.
            await run.until(lambda: run.flow_switches() == "acd")
            status = run.daemon.status()
            assert status.live == ("a", "c", "d")
            assert status.problems == (SwitchProblem("b", "switch b: connect: UNAVAILABLE: nobody there"),)
            assert status.pending_entries == 2
            assert not status.settled
            lab.down.clear()
            await run.settle(1)
            assert run.flow_switches() == "abcd"

    play(scene())


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2), (16, 4)])
def test_daemon_fills_few_switches_at_a_time(lab: Lab, at_once: int, most: int) -> None:
    async def scene() -> None:
        async with running(lab, RetrySettings(drain_ns=0, at_once=at_once)) as run:
            await run.settle()
            assert lab.most_reading == most

    play(scene())


def test_a_hung_switch_does_not_keep_others_from_their_turn(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.network.driver._FILL_S", 0.0)
    lab.hung.add("a")

    async def scene() -> None:
        async with running(lab, RetrySettings(drain_ns=0, at_once=1)) as run:
            await run.until(lambda: set(run.daemon.status().live) == {"b", "c", "d"})

    play(scene())


def test_paths_wait_as_long_as_more_switches_are_read(lab: Lab) -> None:
    lab.down.add("b")

    async def scene() -> None:
        async with running(lab, RetrySettings(drain_ns=0, patience_ns=int(LONG_S * 1e9))) as run:
            run.source.put_nowait(RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "c", "d")),)))
            await run.until(lambda: len(run.daemon.status().live) == 3)
            for _ in range(50):
                await asyncio.sleep(0)
            assert lab.waits.count(LONG_S) > 1
            assert "a" not in run.flow_switches()
            lab.patience.set()
            await run.until(lambda: run.flow_switches() == "acd")

    play(scene())


def test_a_switch_that_dies_under_a_step_does_not_stop_the_rest(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            await run.settle()
            lab.down.add("b")
            lab.unplug("b")
            run.source.put_nowait(routes(1, "abd"))
            run.source.put_nowait(routes(2, "acd"))
            await run.until(lambda: run.flow_switches() == "acd")
            lab.down.clear()
            await run.settle(2)

    play(scene())


def test_waits_grow_while_a_switch_stays_away_and_are_bounded(lab: Lab) -> None:
    async def scene() -> None:
        lab.down.add("b")
        async with running(lab, RetrySettings(first_wait_ns=10**9, longest_wait_ns=6 * 10**9, patience_ns=0)) as run:
            await run.until(lambda: len(lab.waits) > 8)
        waits = [seconds for seconds in lab.waits if seconds]
        bounds = [1, 2, 4, 6, 6, 6]
        assert all(bound / 2 <= seconds <= bound for seconds, bound in zip(waits, bounds, strict=False))

    play(scene())


def test_refused_flow_is_retried_only_with_new_routes(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            await run.settle()
            lab.refuse.add("ipv4_flow_paths")
            run.source.put_nowait(routes(1, "abd"))
            await run.until(
                lambda: (
                    len(run.daemon.features.flow_paths.refusal_counts.refused_twice) == 1
                    and len(run.daemon.status().live) == 4
                )
            )
            assert "ipv4_flow_paths" not in {key.table for key in lab.tables("d")}
            lab.refuse.clear()
            run.source.put_nowait(routes(2, "abd"))
            await run.settle(2)
            assert run.flow_switches() == "abd"

    play(scene())


def test_routes_that_cannot_be_are_counted_and_the_old_ones_stay(lab: Lab) -> None:
    async def scene() -> None:
        async with running(lab) as run:
            run.source.put_nowait(routes(1, "abd"))
            await run.settle(1)
            run.source.put_nowait(routes(2, "ad"))
            await run.until(lambda: run.daemon.status().rejected_route_sets == 1)
            await run.settle(1)
            assert run.flow_switches() == "abd"

    play(scene())


def test_failed_route_source_leaves_the_paths_unchanged(lab: Lab) -> None:
    async def failing() -> AsyncIterator[RouteSet]:
        yield routes(1, "abd")
        raise PathError("the path server speaks version 9")

    async def scene() -> None:
        daemon = Daemon(
            Features(lab.topology),
            lab.connect,
            failing(),
            lab.clock,
            retry=RETRY,
            rng=random.Random(1),
            sleep=lab.sleep,
        )
        task = asyncio.create_task(daemon.run())
        run = Running(lab, daemon, asyncio.Queue())
        await run.settle(1)
        assert daemon.status().source_problem == "the path server speaks version 9"
        assert run.flow_switches() == "abd"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(scene())


def test_settings_must_name_every_switch_and_no_other(diamond: Topology) -> None:
    addresses = {name: f"unix:/run/{name}" for name in "abcd"}
    targets = DaemonSettings(topology="x", switches=addresses).targets(diamond)
    assert (targets["b"].device_id, targets["b"].address) == (2, "unix:/run/b")
    with pytest.raises(ControllerError, match="switch a of diamond has no address"):
        DaemonSettings(topology="x", switches={}).targets(diamond)
    with pytest.raises(ControllerError, match=r"switches\.z: topology diamond has no such switch"):
        DaemonSettings(topology="x", switches={**addresses, "z": "unix:/run/z"}).targets(diamond)
    with pytest.raises(ControllerError, match=r"collector: 'nowhere' is neither unix:PATH nor HOST:PORT"):
        DaemonSettings(topology="x", switches=addresses, collector="nowhere").targets(diamond)
