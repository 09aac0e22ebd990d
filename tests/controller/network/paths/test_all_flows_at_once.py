"""The vectorised core decides like the flow-by-flow one, whatever telemetry shows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from random import Random

import pytest

from collectors.feed import feed_pb2
from collectors.feed.snapshots import snapshot_message, snapshot_of
from collectors.values import DelaySource, FlowKey, LinkState, PathState, Snapshot
from controller.common.errors import PathError
from controller.network.intents import PROBE_UDP_PORT, FlowSpec
from controller.network.paths.balancing.flows import _report_rates
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.graph import Network, Path
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.round_result import RoundResult
from controller.network.paths.seen_flows import SeenFlows
from controller.network.paths.settings import DecideSettings, ManagedFlow
from controller.network.paths.telemetry_load import TelemetryLoad
from dataplane.rpc.messages import parse
from dataplane.topology.families import leaf_spine
from tests.controller.network.paths.plain_core import PlainCore, report_rates

MS = 1_000_000
TOPOLOGY = leaf_spine(spines=3, leaves=3, hosts=2, rate="10 Mbit/s")
HOSTS = [host.name for host in TOPOLOGY.hosts]
SWITCHES = list(TOPOLOGY.switch)
STRANGERS: list[IPv4Address | IPv6Address] = [IPv4Address("192.0.2.7"), IPv6Address("2001:db8::7")]
SETTINGS = DecideSettings(settle_ns=0, hold_down_ns=300 * MS, confirm_rounds=1, min_gain_ns=1000)
LISTED = (
    ManagedFlow(src="h1", dst="h3"),
    ManagedFlow(src="h1", dst="h3", protocol=17),
    ManagedFlow(src="h1", dst="h3", protocol=17, dst_port=80),
    ManagedFlow(src="h2", dst="h5", protocol=6, rate_bps=2_000_000),
    ManagedFlow(src="h3", dst="h1", rate_bps=1_000_000),
    ManagedFlow(src="h1", dst="h2"),
)


class Telemetry:
    """Draws snapshots with steady and changing flows, on existing and missing paths."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.flows = [self._flow() for _ in range(60)]

    def _flow(self) -> FlowKey:
        chance = self.chance
        ends: list[IPv4Address | IPv6Address] = [TOPOLOGY.host[chance.choice(HOSTS)].ipv4 for _ in range(2)]
        if chance.random() < 0.1:
            ends[chance.randrange(2)] = STRANGERS[0]
        if chance.random() < 0.05:
            ends = [STRANGERS[1], STRANGERS[1]]
        port = chance.choice((80, 443, PROBE_UDP_PORT))
        return FlowKey(ends[0], ends[1], chance.choice((6, 17)), chance.randrange(1000, 1004), port)

    def _path(self, flow: FlowKey) -> Path:
        chance = self.chance
        hosts = [TOPOLOGY.host_by_address.get(address) for address in (flow.src, flow.dst)]
        ends = [chance.choice(SWITCHES) if host is None else TOPOLOGY.attachment[host.name].node for host in hosts]
        kind = chance.random()
        if kind < 0.05:
            return ()
        if kind < 0.1:
            return (ends[0], "nobody", ends[1])
        if kind < 0.15:
            return tuple(chance.sample(SWITCHES, 3))
        if kind < 0.2:
            return (ends[0],)
        return (ends[0], chance.choice(("spine1", "spine1", "spine2", "spine3")), ends[1])

    def snapshot(self, taken_ns: int) -> Snapshot:
        chance = self.chance
        for index in chance.sample(range(len(self.flows)), 3):
            self.flows[index] = self._flow()
        seen = {flow: self._state(flow) for flow in self.flows if chance.random() < 0.9}
        return Snapshot(taken_ns, {key: self._link(key) for key in TOPOLOGY.directed_links}, seen, {})

    def _state(self, flow: FlowKey) -> PathState:
        chance = self.chance
        return PathState(
            flow,
            self._path(flow),
            10_000,
            5_000_000,
            chance.choice((0, 0, 0, 50 * MS, 2000 * MS)),
            chance.choice((None, 0, 100_000, *(chance.randrange(4_000_000) for _ in range(9)))),
            measured_bytes=chance.randrange(200_000),
            is_young=chance.random() < 0.2,
            gap_mean_ns=chance.choice((None, 10 * MS)),
            gap_variation=chance.random(),
        )

    def _link(self, key: object) -> LinkState:
        chance, link = self.chance, TOPOLOGY.directed_links[key]  # type: ignore[index]
        delay_ns, used = link.delay_ns + chance.choice((0, 0, 20 * MS)), chance.random()
        loss = chance.choice((None, 0.0, 0.0, 0.95)) if chance.random() < 0.2 else 0.0
        free_bps = int(link.rate_bps * (1 - used))
        return LinkState(
            link.key, link.rate_bps, delay_ns, delay_ns, delay_ns, 9.0, used, free_bps, loss, 0, 50, DelaySource.STAMPS
        )


def over_the_feed(snapshot: Snapshot) -> Snapshot:
    return snapshot_of(parse(feed_pb2.Snapshot, snapshot_message(snapshot).SerializeToString()))


def interrupted(cores: list[PathServerCore], chance: Random, now_ns: int) -> Iterator[list[object]]:
    """Pin and release flows, and let links fail and recover; yield the cores' results of each."""
    link = chance.choice([key for key in TOPOLOGY.directed_links if {key.src, key.dst} <= TOPOLOGY.switch.keys()])
    up = chance.random() < 0.5
    yield [core.link_changed(link, now_ns, up=up) for core in cores]
    src, dst = chance.sample(HOSTS, 2)
    port = chance.choice((None, 80, 443))
    flow = FlowSpec(src, dst, None if port is None else 6, None, port)
    path = (TOPOLOGY.attachment[src].node, chance.choice(("spine1", "spine2")), TOPOLOGY.attachment[dst].node)
    for call in ("pin", "release"):
        if chance.random() < 0.3:
            arguments = (flow, path, now_ns) if call == "pin" else (flow, now_ns)
            yield [answer(partial(getattr(core, call), *arguments)) for core in cores]


def answer(call: partial[object]) -> object:
    try:
        return call()
    except PathError as error:
        return str(error)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_flows": 9},
        {"flows": LISTED},
        {"engineering": EngineeringSettings(interval_ns=300 * MS)},
        {"forget_after_ns": 150 * MS},
    ],
    ids=["discovered", "few", "listed", "engineered", "forgetful"],
)
@pytest.mark.parametrize("seed", range(3))
def test_both_decide_the_same(seed: int, options: dict[str, object]) -> None:
    telemetry, chance = Telemetry(seed), Random(seed)
    cores = [kind(TOPOLOGY, SETTINGS, **options) for kind in (PathServerCore, PlainCore)]  # type: ignore[arg-type]
    now_ns, moves = 1000 * MS, 0
    for number in range(12):
        # The clock jumps back once.
        now_ns += -500 * MS if number == 7 else 100 * MS
        taken = telemetry.snapshot(now_ns)
        ours, plain = (core.step(seen, now_ns) for core, seen in zip(cores, (over_the_feed(taken), taken), strict=True))
        assert ours == plain
        moves += ours is not None
        views = [(core.positions, core._snapshot) for core in cores]
        assigned = [list(positions.current(view, now_ns).items()) for positions, view in views if view is not None]
        assert assigned[0] == assigned[1]
        for results in interrupted(cores, chance, now_ns):
            assert results[0] == results[1]
            moves += isinstance(results[0], RoundResult)
        assert cores[0].counters == cores[1].counters
        assert list(cores[0].positions.managed) == list(cores[1].positions.managed)
    assert moves, "nothing was decided"


@pytest.mark.parametrize("mode", ["md", "hop-by-hop", "mx", "xd"])
@pytest.mark.parametrize("seed", range(3))
def test_reports_of_all_flows_are_those_of_each(seed: int, mode: str) -> None:
    network, snapshot = Network(TOPOLOGY), Telemetry(seed).snapshot(0)
    watch = TelemetryLoad(mode=mode)  # type: ignore[arg-type]
    rates = _report_rates(SeenFlows(network, ()).rows(snapshot), network, watch)
    assert list(rates.items()) == list(report_rates(list(snapshot.paths.values()), network, watch).items())


@pytest.mark.parametrize("seed", range(5))
def test_flows_that_weights_can_lead_are_the_same(seed: int) -> None:
    cores = [kind(TOPOLOGY, SETTINGS, flows=LISTED) for kind in (PathServerCore, PlainCore)]
    snapshot = Telemetry(seed).snapshot(0)
    assigned = []
    for core in cores:
        core.step(snapshot, 0)
        flows = core.positions.measured_flows(snapshot, core._balancer._forwarding())
        assigned.append(flows)
    assert assigned[0] == assigned[1]
    assert assigned[0]
