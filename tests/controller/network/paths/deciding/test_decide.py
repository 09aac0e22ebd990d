"""The path decider, alone and against a fluid model of a network in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.values import DelaySource, LinkState, Snapshot
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.graph import NOBODY, Network, Own, StateGraph
from controller.network.paths.settings import DecideSettings, Mode
from dataplane.topology.values import LinkKey, Topology
from tests.controller.network.paths.deciding.fresh_decider import decide, explain

MakeTopology = Callable[..., Topology]

MS = 1_000_000
RATE_BPS = 10_000_000
AD = FlowSpec("ha", "hd")
SETTINGS = DecideSettings(hold_down_ns=1000 * MS, settle_ns=200 * MS, min_gain_ns=MS, min_gain_bps=RATE_BPS // 10)


@pytest.fixture(scope="module")
def network(diamond_of: MakeTopology) -> Network:
    """Return the diamond with a-b-d of 10 ms, a-c-d of 14 ms, and a cross cable of 20 ms."""
    return Network(diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS), RATE_BPS))


_SAMPLES = 1_000
"""Enough packets for a load to be no chance."""


def link_state(
    network: Network,
    key: str,
    *,
    queue_ns: int = 0,
    used: float = 0.0,
    loss: float | None = None,
    age_ns: int | None = 0,
) -> tuple[LinkKey, LinkState]:
    """Return the state of a link such as 'ab'."""
    link = network.topology.directed_links[LinkKey(*key)]
    delay_ns = link.delay_ns + queue_ns
    available = round(link.rate_bps * (1 - used))
    state = LinkState(
        *(link.key, link.rate_bps, delay_ns, delay_ns, delay_ns, 0.0, used, available, loss, age_ns),
        *(_SAMPLES, DelaySource.STAMPS),
    )
    return link.key, state


def snapshot(*states: tuple[LinkKey, LinkState]) -> Snapshot:
    """Return a snapshot of some links."""
    return Snapshot(0, dict(states), {}, {})


def on(
    path: str, since_ns: int | None = None, rate_bps: int | None = None, measured_bytes: int | None = None
) -> Mapping[FlowSpec, Assignment]:
    """Return the one flow on a path such as 'abd'."""
    return {AD: Assignment(tuple(path), since_ns, rate_bps, measured_bytes=measured_bytes)}


def moves(network: Network, taken: Snapshot, current: Mapping[FlowSpec, Assignment], **changes: object) -> list[str]:
    """Return the new paths of moved flows."""
    changed = msgspec.structs.replace(SETTINGS, **changes)
    return ["".join(decision.new_path) for decision in decide(taken, network, current, changed, now_ns=5000 * MS)]


def test_small_flows_leave_before_a_large_one_needs_a_detour(network: Network) -> None:
    taken = snapshot(
        link_state(network, "ab", queue_ns=30 * MS, used=1.0),
        link_state(network, "cd", used=0.7),
        *(link_state(network, key) for key in ("bd", "ac", "cb", "bc")),
    )
    flows = {
        FlowSpec("ha", "hd", 17, 1, port): Assignment(("a", "b", "d"), None, rate_bps)
        for port, rate_bps in ((1, 7_000_000), (2, 1_000_000), (3, 2_200_000))
    }
    settings = msgspec.structs.replace(SETTINGS, moves_per_round=2, min_gain_ns=None)
    alone = decide(
        taken, network, {flow: at for flow, at in flows.items() if at.rate_bps == 7_000_000}, settings, now_ns=0
    )
    assert [decision.new_path for decision in alone] == [("a", "c", "b", "d")]
    [first, *_] = decide(taken, network, flows, settings, now_ns=0)
    assert (first.flow.dst_port, first.new_path) == (2, ("a", "c", "d"))


def test_congested_link_is_left_and_the_reason_names_both_paths(network: Network) -> None:
    taken = snapshot(link_state(network, "ab", queue_ns=30 * MS, used=1.0), link_state(network, "ba"))
    [decision] = decide(taken, network, on("abd", rate_bps=RATE_BPS // 4), SETTINGS, now_ns=7)
    assert (decision.time_ns, decision.flow) == (7, AD)
    assert (decision.old_path, decision.new_path) == (("a", "b", "d"), ("a", "c", "d"))
    assert decision.reason == (
        "a->b of a-b-d (40.000 ms, 2.5 Mbit/s free) is overloaded; a-c-d (14.000 ms, 10.0 Mbit/s free) has room"
    )
    assert {figures.switches: figures.delay_ns for figures in decision.candidates} == {
        ("a", "b", "d"): 40 * MS,
        ("a", "c", "d"): 14 * MS,
        ("a", "b", "c", "d"): 62 * MS,
        ("a", "c", "b", "d"): 32 * MS,
    }


def test_nothing_is_decided_without_telemetry(network: Network) -> None:
    assert moves(network, snapshot(), on("abd")) == []


@pytest.mark.parametrize(("queue_ns", "expected"), [(5 * MS - 1, []), (6 * MS, ["acd"])])
def test_both_margins_must_be_met(network: Network, queue_ns: int, expected: list[str]) -> None:
    taken = snapshot(link_state(network, "ab", queue_ns=queue_ns), link_state(network, "ba"))
    assert moves(network, taken, on("abd"), min_gain=0.0) == (["acd"] if queue_ns >= 5 * MS else [])
    assert moves(network, taken, on("abd"), min_gain=0.12) == expected


def test_stale_telemetry_counts_as_the_configured_delay(network: Network) -> None:
    old = link_state(network, "ab", queue_ns=90 * MS, age_ns=SETTINGS.stale_after_ns + 1)
    assert moves(network, snapshot(old), on("abd")) == []
    assert moves(network, snapshot(old), on("acd")) == ["abd"]


def test_a_path_without_room_is_not_taken(network: Network) -> None:
    crowded = link_state(network, "cd", used=0.8)
    slow = link_state(network, "ab", queue_ns=50 * MS, used=0.9)
    taken = snapshot(slow, crowded, link_state(network, "cb", used=0.9), link_state(network, "ba"))
    assert moves(network, taken, on("abd", rate_bps=RATE_BPS // 6), headroom=0.1) == []
    assert moves(network, taken, on("abd", rate_bps=RATE_BPS // 12), headroom=0.1) == ["acd"]
    verdict = explain(taken, network, on("abd", rate_bps=RATE_BPS), SETTINGS, now_ns=0, flow=AD)
    assert (verdict.moves, verdict.reason) == (False, "no other path has room")


def test_a_flow_that_moved_is_held_down(network: Network) -> None:
    taken = snapshot(link_state(network, "ab", queue_ns=30 * MS))
    assert moves(network, taken, on("abd", since_ns=4001 * MS)) == []
    assert moves(network, taken, on("abd", since_ns=4000 * MS)) == ["acd"]
    verdict = explain(taken, network, on("abd", since_ns=4001 * MS), SETTINGS, now_ns=5000 * MS, flow=AD)
    assert not verdict.moves
    assert verdict.reason.startswith("in hold-down since its last move, although a-c-d")


def test_after_a_move_the_others_wait_until_the_network_settles(network: Network) -> None:
    taken = snapshot(link_state(network, "ab", queue_ns=30 * MS))
    other = FlowSpec("ha", "hc")
    waiting = {AD: Assignment(("a", "b", "d")), other: Assignment(("a", "c"), since_ns=4900 * MS)}
    assert moves(network, taken, waiting) == []
    waiting[other] = Assignment(("a", "c"), since_ns=4800 * MS)
    assert moves(network, taken, waiting) == ["acd"]


@pytest.mark.parametrize("cause", ["loss", "silence"])
def test_a_dead_path_is_left_at_once_even_when_held_down(network: Network, cause: str) -> None:
    dead = link_state(network, "bd", loss=0.95) if cause == "loss" else link_state(network, "bd", age_ns=3000 * MS)
    assert moves(network, snapshot(dead), on("abd", since_ns=5000 * MS), dead_after_ns=2000 * MS) == ["acd"]


def test_a_dead_path_is_kept_when_there_is_no_other(network: Network) -> None:
    dead = snapshot(link_state(network, "bd", loss=1.0), link_state(network, "cd", loss=1.0))
    assert moves(network, dead, on("abd")) == []
    assert explain(dead, network, on("abd"), SETTINGS, now_ns=0, flow=AD).reason == (
        "link b->d of a-b-d is dead and no other path is alive"
    )


def test_the_widest_path_wins_when_bandwidth_decides(network: Network) -> None:
    taken = snapshot(link_state(network, "ab", used=0.5), link_state(network, "cd", used=0.2))
    assert moves(network, taken, on("abd", rate_bps=0), mode=Mode.MOST_BANDWIDTH) == ["acbd"]
    taken = snapshot(link_state(network, "bd", used=0.5), link_state(network, "cd", used=0.2))
    assert moves(network, taken, on("abd", rate_bps=0), mode=Mode.MOST_BANDWIDTH) == ["acd"]
    assert moves(network, taken, on("abd", rate_bps=RATE_BPS // 3), mode=Mode.MOST_BANDWIDTH) == []


def test_equally_wide_paths_are_decided_by_delay(network: Network) -> None:
    assert moves(network, snapshot(), on("acd"), mode=Mode.MOST_BANDWIDTH) == ["abd"]
    assert moves(network, snapshot(), on("abd"), mode=Mode.MOST_BANDWIDTH) == []


def test_both_means_least_delay_among_paths_that_are_wide_enough(network: Network) -> None:
    narrow = snapshot(link_state(network, "ab", used=0.7))
    assert moves(network, narrow, on("abd", rate_bps=0), mode=Mode.BOTH, widest_share=0.5) == ["acd"]
    assert moves(network, narrow, on("abd", rate_bps=0), mode=Mode.BOTH, widest_share=0.2) == []
    assert moves(network, narrow, on("acd", rate_bps=0), mode=Mode.BOTH, widest_share=0.5) == []


def test_flows_do_not_herd_onto_the_same_path(network: Network) -> None:
    """Four flows should leave; the first two fill the other path's room."""
    taken = snapshot(link_state(network, "ab", queue_ns=40 * MS, used=1.0), link_state(network, "ac", used=0.5))
    flows = {
        FlowSpec("ha", "hd", 17, port): Assignment(("a", "b", "d"), rate_bps=RATE_BPS // 4) for port in range(1, 5)
    }
    decided = decide(taken, network, flows, DecideSettings(moves_per_round=4, min_gain_ns=MS), now_ns=0)
    assert ["".join(decision.new_path) for decision in decided] == ["acd"]
    assert decided[0].flow == FlowSpec("ha", "hd", 17, 1)


def test_queue_drained_by_a_move_deters_no_other_flow(network: Network) -> None:
    taken = snapshot(link_state(network, "ab", queue_ns=40 * MS, used=0.95))
    flows = {FlowSpec("ha", "hd", 17, port): Assignment(("a", "b", "d"), rate_bps=2_400_000) for port in range(1, 5)}
    assert len(decide(taken, network, flows, DecideSettings(moves_per_round=4, min_gain_ns=MS), now_ns=0)) == 1


def test_unknown_rate_is_the_share_of_the_emptiest_link(network: Network) -> None:
    taken = snapshot(link_state(network, "ab", used=0.8), link_state(network, "bd", used=0.6))
    flows = {AD: Assignment(("a", "b", "d")), FlowSpec("ha", "hb"): Assignment(("a", "b"))}
    verdict = explain(taken, network, flows, SETTINGS, now_ns=0, flow=AD)
    assert verdict.rate_bps == pytest.approx(0.4 * RATE_BPS, abs=1)


def test_own_load_is_given_back(network: Network) -> None:
    graph = StateGraph.of(network, snapshot(link_state(network, "ab", used=0.5)), SETTINGS)
    own = Own(3_000_000, network.rows(("a", "b", "d")))
    assert graph.figures(("a", "b", "d"), own).bottleneck_bps == 8_000_000
    assert graph.figures(("a", "b", "d"), NOBODY).bottleneck_bps == 5_000_000
    assert graph.widest_bps("a", "d", NOBODY) == RATE_BPS


def test_candidates_are_shortest_first_and_bounded(network: Network) -> None:
    assert network.candidates("a", "d", 3) == (("a", "b", "d"), ("a", "c", "d"), ("a", "b", "c", "d"))
    assert network.base("a", "d") == (("a", "b", "d"), True)


def test_two_hosts_of_one_switch_have_nothing_to_decide(network: Network) -> None:
    flow = FlowSpec("ha", "ha")
    assert decide(snapshot(), network, {flow: Assignment(("a",))}, SETTINGS, now_ns=0) == []


@dataclass
class Fluid:
    """A network of fluid flows: loads follow paths, queues grow near the link rate."""

    network: Network
    flows: dict[FlowSpec, Assignment]
    rates_bps: dict[FlowSpec, int]
    cross_bps: dict[LinkKey, int] = field(default_factory=dict)
    noise: random.Random | None = None
    history: list[tuple[int, FlowSpec, tuple[str, ...]]] = field(default_factory=list)

    def measure(self) -> Snapshot:
        loads = dict(self.cross_bps)
        for flow, assignment in self.flows.items():
            for key in map(LinkKey, assignment.path, assignment.path[1:]):
                loads[key] = loads.get(key, 0) + self.rates_bps[flow]
        states = []
        for key, rate_bps in zip(self.network.table.links, self.network.table.rate_bps.tolist(), strict=True):
            share = min(loads.get(key, 0) / rate_bps, 1.0)
            queue_ns = 50 * MS if share > 0.97 else 0
            jitter_ns = self.noise.randrange(-MS // 2, MS // 2) if self.noise else 0
            states.append(link_state(self.network, f"{key.src}{key.dst}", queue_ns=queue_ns + jitter_ns, used=share))
        return snapshot(*states)

    def run(self, start_ns: int, end_ns: int, how: DecideSettings = SETTINGS) -> None:
        for now_ns in range(start_ns, end_ns, 100 * MS):
            for decision in decide(self.measure(), self.network, self.flows, how, now_ns=now_ns):
                self.flows[decision.flow] = Assignment(decision.new_path, now_ns)
                self.history.append((now_ns, decision.flow, decision.new_path))

    def last_moves(self) -> dict[FlowSpec, list[int]]:
        moves: dict[FlowSpec, list[int]] = {}
        for now_ns, flow, _ in self.history:
            moves.setdefault(flow, []).append(now_ns)
        return moves


def test_flow_leaves_congestion_and_returns_after_hold_down(network: Network) -> None:
    fluid = Fluid(network, dict(on("abd")), {AD: 2_000_000})
    fluid.run(0, 1000 * MS)
    assert fluid.history == []
    fluid.cross_bps[LinkKey("a", "b")] = RATE_BPS
    fluid.run(1000 * MS, 1500 * MS)
    fluid.cross_bps.clear()
    fluid.run(1500 * MS, 5000 * MS)
    assert fluid.history == [(1000 * MS, AD, ("a", "c", "d")), (2000 * MS, AD, ("a", "b", "d"))]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), mode=st.sampled_from(list(Mode)))
def test_noise_moves_nothing(network: Network, seed: int, mode: Mode) -> None:
    how = DecideSettings(mode=mode, min_gain_ns=2 * MS, min_gain=0.1)
    fluid = Fluid(network, dict(on("abd")), {AD: 1_000_000}, noise=random.Random(seed))
    fluid.run(0, 5000 * MS, how)
    assert fluid.history == []


def test_a_load_that_swings_below_the_margin_moves_nothing(network: Network) -> None:
    for start in range(0, 10_000, 200):
        queue_ns = 4 * MS if start % 400 else 0
        taken = snapshot(link_state(network, "ab", queue_ns=queue_ns, used=0.9 if queue_ns else 0.1))
        assert decide(taken, network, on("abd", rate_bps=100_000), SETTINGS, now_ns=start * MS) == []


@settings(max_examples=25, deadline=None)
@given(
    rates=st.lists(st.integers(500_000, 4_000_000), min_size=2, max_size=6),
    swings=st.lists(st.sampled_from([0, RATE_BPS // 2, RATE_BPS]), min_size=8, max_size=8),
)
def test_moves_respect_hold_down_and_the_limit_per_round(network: Network, rates: list[int], swings: list[int]) -> None:
    flows = {FlowSpec("ha", "hd", 17, port): Assignment(("a", "b", "d")) for port in range(1, len(rates) + 1)}
    fluid = Fluid(network, flows, dict(zip(flows, rates, strict=True)))
    for index, cross in enumerate(swings):
        fluid.cross_bps[LinkKey("a", "b")] = cross
        fluid.run(index * 700 * MS, (index + 1) * 700 * MS)
    for times in fluid.last_moves().values():
        assert all(later - earlier >= SETTINGS.hold_down_ns for earlier, later in pairwise(times))
    rounds = [now_ns for now_ns, _, _ in fluid.history]
    assert all(rounds.count(now_ns) <= SETTINGS.moves_per_round for now_ns in rounds)


def test_a_steady_overload_is_spread_once_and_then_left_alone(network: Network) -> None:
    flows = {FlowSpec("ha", "hd", 17, port): Assignment(("a", "b", "d")) for port in range(1, 7)}
    fluid = Fluid(network, flows, dict.fromkeys(flows, 2_500_000))
    fluid.run(0, 20_000 * MS)
    loads = fluid.measure()
    assert loads.links[LinkKey("a", "b")].utilisation < 0.97
    assert loads.links[LinkKey("a", "c")].utilisation < 0.97
    assert fluid.history[-1][0] < 3000 * MS


def test_flow_moves_once_a_round_and_attracts_no_other(network: Network) -> None:
    taken = snapshot(link_state(network, "ab", queue_ns=40 * MS, used=0.9))
    how = DecideSettings(moves_per_round=4, min_gain_ns=MS, hold_down_ns=0, settle_ns=0)
    flows = {
        AD: Assignment(("a", "b", "d"), rate_bps=5_000_000),
        FlowSpec("ha", "hd", 17): Assignment(("a", "c", "d"), rate_bps=1_000_000),
    }
    decided = decide(taken, network, flows, how, now_ns=0)
    assert [(decision.flow, decision.new_path) for decision in decided] == [(AD, ("a", "c", "d"))]


def test_a_link_is_not_better_for_not_being_measured(network: Network) -> None:
    """Unmeasured links get the least loaded measured link's delay beyond propagation, up to two frames."""
    taken = snapshot(link_state(network, "ab", queue_ns=9 * MS), link_state(network, "bd", queue_ns=2 * MS))
    graph = StateGraph.of(network, taken, SETTINGS)
    assert graph.figures(("a", "c", "d"), NOBODY).delay_ns == 18 * MS
    assert graph.figures(("a", "b", "d"), NOBODY).delay_ns == 21 * MS
    queued = StateGraph.of(network, snapshot(link_state(network, "ab", queue_ns=90 * MS)), SETTINGS)
    two_frames_ns = 2 * 1538 * 8 * 1_000_000_000 // RATE_BPS
    assert queued.figures(("a", "c", "d"), NOBODY).delay_ns == 14 * MS + 2 * two_frames_ns


def scaled(delay_ns: int, rate_bps: int, diamond_of: MakeTopology) -> Network:
    """Return the diamond with links of a WAN's or a rack's delay and rate."""
    return Network(diamond_of((delay_ns, delay_ns, delay_ns, delay_ns, 4 * delay_ns), rate_bps))


@pytest.mark.parametrize(
    ("delay_ns", "rate_bps"), [(20 * MS, 10_000_000_000), (1000, 10_000_000_000), (1000, 4_000_000)]
)
def test_full_link_is_left_at_once_at_any_scale_by_default(
    delay_ns: int, rate_bps: int, diamond_of: MakeTopology
) -> None:
    network = scaled(delay_ns, rate_bps, diamond_of)
    frame_ns = 1538 * 8 * 1_000_000_000 // rate_bps
    full = snapshot(link_state(network, "ab", queue_ns=5 * frame_ns, used=0.97), link_state(network, "ba"))
    calm = snapshot(link_state(network, "ab", queue_ns=frame_ns, used=0.7), link_state(network, "ba"))
    jitter = snapshot(link_state(network, "ab", queue_ns=50 * frame_ns, used=0.1), link_state(network, "ba"))
    flows = {AD: Assignment(("a", "b", "d"), rate_bps=rate_bps // 5)}
    decider = Decider(network, DecideSettings())
    for taken, expected in ((calm, []), (jitter, []), (full, [("a", "c", "d")])):
        decider.observe(taken)
        decider.locate(flows)
        assert [decision.new_path for decision in decider.step(0)] == expected


def test_overload_is_foreseen_before_a_queue_grows(network: Network) -> None:
    flows = {
        FlowSpec("ha", "hd", 17, port): Assignment(("a", "b", "d"), rate_bps=RATE_BPS * 37 // 100) for port in range(3)
    }
    taken = snapshot(link_state(network, "ab"), link_state(network, "ba"))
    decider = Decider(network, DecideSettings())
    decider.observe(taken)
    decider.locate(flows)
    [decision] = decider.step(0)  # one of three is enough
    assert decision.reason.startswith("a->b of a-b-d (10.000 ms, 2.6 Mbit/s free) is overloaded")


def test_rates_of_few_packets_foresee_nothing(network: Network) -> None:
    flows = {
        FlowSpec("ha", "hd", 17, port): Assignment(("a", "b", "d"), rate_bps=RATE_BPS * 4 // 10, measured_bytes=2000)
        for port in range(3)
    }
    decider = Decider(network, DecideSettings())
    decider.observe(snapshot(link_state(network, "ab"), link_state(network, "ba")))
    decider.locate(flows)
    assert decider.step(0) == []


def test_full_link_moves_no_flow_while_the_network_settles(network: Network) -> None:
    full = snapshot(link_state(network, "ab", queue_ns=40 * MS, used=1.0), link_state(network, "ba"))
    flows = {
        FlowSpec("ha", "hd", 17, 1): Assignment(("a", "c", "d"), since_ns=0, rate_bps=3_000_000),
        FlowSpec("ha", "hd", 17, 2): Assignment(("a", "b", "d"), rate_bps=3_000_000),
    }
    decider = Decider(network, DecideSettings())
    decider.observe(full)
    decider.locate(flows)
    assert decider.step(DecideSettings().settle_ns - 1) == []
    assert len(decider.step(DecideSettings().settle_ns)) == 1


def test_flow_measured_behind_a_full_link_needs_more_room(network: Network) -> None:
    full = snapshot(link_state(network, "ab", queue_ns=40 * MS, used=1.0), link_state(network, "ba"))
    assert moves(network, full, on("abd", rate_bps=7_000_000), headroom=0.2) == ["acd"]
    assert moves(network, full, on("abd", rate_bps=7_000_000, measured_bytes=10**6), headroom=0.2) == []
    assert moves(network, full, on("abd", rate_bps=6_000_000, measured_bytes=10**6), headroom=0.2) == ["acd"]
