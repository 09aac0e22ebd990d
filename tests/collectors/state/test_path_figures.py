"""Figures of all flows' paths at once equal those of the reference, flow by flow."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.counters import Counters
from collectors.decode.samples import LinkSample
from collectors.decode.stitch import SeenPath
from collectors.native.accumulator import NativeStore
from collectors.native.figures import NativeFlows
from collectors.reference.stitch import PlainStitcher
from collectors.settings import StateSettings
from collectors.state.builder import NetworkStateBuilder
from collectors.state.link_states import LinkStates
from collectors.state.path_figures import PathMaker, path_columns
from collectors.state.path_states import PathStates, columns_of
from collectors.statistics.rate import RateWindow
from collectors.values import DelaySource, FlowKey
from dataplane.clock import VirtualClock
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey, Topology

MS = 1_000_000
TOPOLOGY = leaf_spine(spines=2, leaves=3, hosts=2)
STRANGERS: list[IPv4Address | IPv6Address] = [IPv4Address("192.0.2.1"), IPv6Address("2001:db8::99")]


def random_way(topology: Topology, chance: Random) -> tuple[str, ...]:
    """Return a walk of one to five switches."""
    beside: dict[str, list[str]] = {}
    for key in topology.directed_links:
        if {key.src, key.dst} <= topology.switch.keys():
            beside.setdefault(key.src, []).append(key.dst)
    way = [chance.choice(topology.switches).name]
    for _ in range(chance.randrange(5)):
        way.append(chance.choice(beside[way[-1]]))
    return tuple(way)


def end_of(topology: Topology, switch: str, chance: Random) -> IPv4Address | IPv6Address:
    """Return the address of a host at a switch, or of an unknown host."""
    hosts = [host.ipv4 for host in topology.hosts if topology.attachment[host.name].node == switch]
    return chance.choice([*hosts, STRANGERS[0]])


def fill(store: NativeStore, clock: VirtualClock, chance: Random) -> None:
    for number in range(80):
        clock.advance_to(clock.now_ns() + chance.randrange(40) * MS)
        way = random_way(TOPOLOGY, chance)
        ends = end_of(TOPOLOGY, way[0], chance), end_of(TOPOLOGY, way[-1], chance)
        if number % 9 == 0:
            ends = STRANGERS[1], STRANGERS[1]
        flow = FlowKey(*ends, chance.choice((6, 17)), number, 65_535 - number)
        for _ in range(chance.randrange(3)):
            store.take_packet(flow, chance.randrange(40, 9000), clock.now_ns())
        delay_ns = chance.choice((None, chance.randrange(10 * MS)))
        store.take_path(SeenPath(flow, way, tuple(map(LinkKey, way, way[1:])), None, clock.now_ns(), delay_ns))
        link = TOPOLOGY.directed_links[chance.choice(list(TOPOLOGY.directed_links))]
        tail = TOPOLOGY.switch.get(link.key.src)
        if tail is not None:
            sample = LinkSample(link.key, tail.node_id, None, clock.now_ns(), 5 * MS, DelaySource.STAMPS, 3, 1000)
            store.take_sample(sample)


def with_losses(links: LinkStates, chance: Random, unknown: float) -> LinkStates:
    losses = [np.nan if chance.random() < unknown else chance.random() for _ in links]
    return LinkStates(links.places, {**links.columns, "loss": np.array(losses)})


@pytest.mark.parametrize("unknown", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_columns_equal_paths_made_one_by_one(seed: int, unknown: float) -> None:
    chance, clock = Random(seed), VirtualClock()
    settings, counters = StateSettings(sample_every=3), Counters()
    store = NativeStore(TOPOLOGY, settings, counters)
    builder = NetworkStateBuilder(
        TOPOLOGY, clock, settings, counters, store, PlainStitcher(TOPOLOGY, settings, counters)
    )
    fill(store, clock, chance)
    links = builder.snapshot().links
    assert isinstance(links, LinkStates)
    links = with_losses(links, chance, unknown)
    # Some windows are stale at this time.
    now_ns = clock.now_ns() + settings.stale_after_ns * seed // 4
    seen = store.flows(now_ns)
    assert isinstance(seen, NativeFlows)
    maker = PathMaker(TOPOLOGY, links, now_ns, settings.stale_after_ns)
    wanted = [(flow.flow, maker.path(flow)) for flow in seen]
    columns = path_columns(seen.columns(), links, now_ns, settings.stale_after_ns)
    assert list(PathStates(len(columns), lambda: columns).items()) == wanted
    assert len(wanted) > 20


def test_columns_of_single_states_are_those_they_came_from() -> None:
    clock, settings, counters = VirtualClock(), StateSettings(), Counters()
    store = NativeStore(TOPOLOGY, settings, counters)
    builder = NetworkStateBuilder(
        TOPOLOGY, clock, settings, counters, store, PlainStitcher(TOPOLOGY, settings, counters)
    )
    fill(store, clock, Random(1))
    paths = builder.snapshot().paths
    made = columns_of(dict(paths))
    assert list(PathStates(len(made), lambda: made).items()) == list(paths.items())


def test_routes_are_the_same_object_until_they_change() -> None:
    store = NativeStore(TOPOLOGY, StateSettings(), Counters())
    ways = [("spine1", "leaf1"), ("spine1", "leaf2"), ("leaf1", "spine1", "leaf2")]
    tables = []
    for number, way in enumerate((*ways[:2], ways[1], ways[2])):
        flow = FlowKey(STRANGERS[0], STRANGERS[0], 17, number, 1)
        store.take_path(SeenPath(flow, way, tuple(map(LinkKey, way, way[1:])), None, number, None))
        seen = store.flows(number)
        assert isinstance(seen, NativeFlows)
        tables.append(seen.columns().routes.switches)
    assert tables == [tuple(ways[:1]), tuple(ways[:2]), tuple(ways[:2]), tuple(ways)]
    assert tables[1] is tables[2]


@given(
    st.integers(1, 100_000_000_000),
    st.integers(1, 2**32),
    st.lists(st.tuples(st.integers(0, 8 * 2**32), st.integers(0, 2**50), st.integers(0, 2**50)), max_size=5),
)
def test_rates_of_many_flows_are_those_of_each(window_ns: int, every: int, rows: list[tuple[int, int, int]]) -> None:
    window = RateWindow(window_ns)
    flows = [(nbytes, first_ns, first_ns + later_ns) for nbytes, first_ns, later_ns in rows]
    columns = np.array(flows, np.int64).reshape(-1, 3).T
    wanted = [min(window.rate_bps(nbytes * every, *times), 2**63 - 1) for nbytes, *times in flows]
    assert window.rates_bps(columns[0], every, columns[1], columns[2]).tolist() == wanted
