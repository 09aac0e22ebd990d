"""Telemetry's own load on links, as part of the predicted effect of a move."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from collectors.values import DelaySource, LinkState, Snapshot
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment
from controller.network.paths.deciding.flow_table import FlowTable
from controller.network.paths.deciding.graph import Network, Own, StateGraph
from controller.network.paths.settings import DecideSettings
from controller.network.paths.telemetry_load import TelemetryLoad
from controller.network.tables.telemetry.int_watch import DEFAULT_INSTRUCTIONS, Watch
from dataplane.topology.families import ring
from dataplane.topology.values import LinkKey, Topology
from tests.controller.network.paths.deciding.fresh_decider import decide, explain

MakeTopology = Callable[..., Topology]
MS = 1_000_000
RATE_BPS = 10_000_000
ROUND = FlowSpec("h2", "h3")
EVERY = TelemetryLoad()
CALM = DecideSettings(min_gain_ns=MS, headroom=0.05)


@pytest.fixture(scope="module")
def network() -> Network:
    """Return a ring of four switches at 10 Mbit/s; the collector is at s1."""
    return Network(ring(4, rate="10 Mbit/s"))


def crowd(network: Network, key: LinkKey, queue_ns: int) -> Snapshot:
    """Return a snapshot in which one link has a queue and little load."""
    link = network.topology.directed_links[key]
    delay_ns = link.delay_ns + queue_ns
    figures = (link.rate_bps, delay_ns, delay_ns, delay_ns, 0.0, 0.5, link.rate_bps // 2)
    idle = LinkKey(key.dst, key.src)
    free = (link.rate_bps, link.delay_ns, link.delay_ns, link.delay_ns, 0.0, 0.0, link.rate_bps)
    states = {
        key: LinkState(key, *figures, None, 0, 1, DelaySource.STAMPS),
        idle: LinkState(idle, *free, None, 0, 1, DelaySource.STAMPS),
    }
    return Snapshot(0, states, {}, {})


def test_watch_rules_are_understood_by_the_same_names() -> None:
    rule, load = Watch(), TelemetryLoad()
    assert {name: getattr(rule, name) for name in TelemetryLoad.__struct_fields__} == msgspec.structs.asdict(load)
    assert load.instructions == DEFAULT_INSTRUCTIONS
    assert load.hop_bytes == 36


@pytest.mark.parametrize(
    ("load", "carried", "reporters"),
    [
        (TelemetryLoad(), [52, 88, 124], 1),
        (TelemetryLoad(sample_every=4), [13, 22, 31], 1),
        (TelemetryLoad(mode="hop-by-hop"), [16, 16, 16], 3),
        (TelemetryLoad(mode="xd"), [0, 0, 0], 3),
    ],
)
def test_carried_bytes_and_reporters_follow_the_load(load: TelemetryLoad, carried: list[int], reporters: int) -> None:
    assert [load.carried_bytes(hop) for hop in (1, 2, 3)] == carried
    assert len(load.reports([7, 8, 9])) == reporters


def test_a_flow_that_telemetry_would_not_let_fit_stays(network: Network) -> None:
    """9 Mbit/s fit on 10 Mbit/s, but not with 36 bytes per hop: a flow once overloaded its new links."""
    taken = crowd(network, LinkKey("s2", "s3"), 40 * MS)
    flows = {ROUND: Assignment(("s2", "s3"), rate_bps=9_000_000)}
    [moved] = decide(taken, network, flows, CALM, now_ns=0)
    assert moved.new_path == ("s2", "s1", "s4", "s3")
    careful = msgspec.structs.replace(CALM, watch=EVERY)
    assert decide(taken, network, flows, careful, now_ns=0) == []
    assert explain(taken, network, flows, careful, now_ns=0, flow=ROUND).reason == "no other path has room"
    rarely = msgspec.structs.replace(CALM, watch=TelemetryLoad(sample_every=10))
    assert len(decide(taken, network, flows, rarely, now_ns=0)) == 1


def test_longer_frames_carry_less_telemetry(network: Network) -> None:
    taken = crowd(network, LinkKey("s2", "s3"), 40 * MS)
    careful = msgspec.structs.replace(CALM, watch=EVERY)
    short = {ROUND: Assignment(("s2", "s3"), rate_bps=7_000_000, packet_bytes=200)}
    long = {ROUND: Assignment(("s2", "s3"), rate_bps=7_000_000, packet_bytes=1500)}
    assert decide(taken, network, short, careful, now_ns=0) == []
    assert len(decide(taken, network, long, careful, now_ns=0)) == 1


def test_loads_grow_per_hop_and_reports_go_to_the_collector(network: Network) -> None:
    graph = StateGraph.of(network, Snapshot(0, {}, {}, {}), msgspec.structs.replace(CALM, watch=EVERY))
    rows = network.rows(("s2", "s3", "s4"))
    loads = graph.loads(rows, Own(800_000, rows, packets_per_s=100.0))
    first, second = (loads[row] for row in rows)
    assert (first, second) == (800_000 + 8 * 100 * 52, 800_000 + 8 * 100 * 88)
    [report] = [row for row in loads if row not in rows]
    assert network.table.links[report] == LinkKey("s4", "s1")
    assert loads[report] == round(8 * 100 * EVERY.reports([0, 0, 0])[0][1])


def test_links_that_reports_would_fill_keep_a_flow_away(network: Network) -> None:
    """The detour ends at the same switch, whose reports get two hops longer and do not fit."""
    taken = crowd(network, LinkKey("s3", "s4"), 40 * MS)
    flow = FlowSpec("h3", "h4")
    careful = msgspec.structs.replace(CALM, watch=EVERY)
    flows = {flow: Assignment(("s3", "s4"), rate_bps=4_000_000, packet_bytes=500)}
    assert len(decide(taken, network, flows, careful, now_ns=0)) == 1
    key = LinkKey("s4", "s1")
    full = (RATE_BPS, MS, MS, MS, 0.0, 0.94, RATE_BPS * 6 // 100)
    taken = Snapshot(0, {**taken.links, key: LinkState(key, *full, None, 0, 1, DelaySource.STAMPS)}, {}, {})
    assert decide(taken, network, flows, careful, now_ns=0) == []


def test_offered_load_includes_the_telemetry_of_packets(network: Network) -> None:
    path = ("s2", "s3", "s4")
    flows = FlowTable.of(
        network,
        {
            FlowSpec("h2", "h4"): Assignment(path, rate_bps=800_000, packet_bytes=1000),
            FlowSpec("h3", "h4"): Assignment(path[1:], rate_bps=400_000, past_bps=100_000, uncertain_bps=200_000),
        },
    )
    first, second = network.rows(path)
    plain, carrying = flows.offered_bps(None), flows.offered_bps(EVERY)
    assert (plain[first], plain[second]) == (800_000, 800_000 + 300_000)
    assert carrying[first] - plain[first] == 8 * 100 * 52
    assert flows.uncertain_bps()[second] == 400_000 // 2
    assert flows.uncertain_bps()[first] == 0
