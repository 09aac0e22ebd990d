"""Bookkeeping of the chain's benchmark: when an event is seen, what of it was decided, how long status took."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from controller.network.intents import FlowSpec, Route, RouteSet
from dataplane.topology.file import load_topology
from tests.benchmarks.chaining.cases import CLIENT, COUNTED, GOAL_10K, MANY_FLOWS, NAMES, Outcome, figures
from tests.benchmarks.chaining.events import Event, Steering, next_event, percentile
from tests.benchmarks.chaining.flows import Flows, Mix, Path, make_flows
from tests.benchmarks.chaining.watching import StatusPoll
from tests.waiting import until

SECOND = 1_000_000_000


@pytest.fixture
def flows() -> Flows:
    """Return flows of a small fabric, half of them heavy."""
    return make_flows(load_topology("leaf-spine:spines=2,leaves=3,hosts=4"), 60, Mix.HEAVY, 1)


def around(path: Path) -> Path:
    """Return the path over the other spine."""
    return path[0], "spine2" if path[1] == "spine1" else "spine1", path[2]


def routes_of(flows: Flows, moved: dict[int, Path]) -> RouteSet:
    specs = {flow: FlowSpec(flows.flows[flow].src, flows.flows[flow].dst) for flow in moved}
    return RouteSet(1, tuple(Route(specs[flow], path) for flow, path in moved.items()))


def test_event_is_seen_once_a_flow_leaves_its_link(flows: Flows) -> None:
    event, steering = next_event(flows, np.random.default_rng(1), None), Steering(flows)
    first, second = sorted(event.heavy)[:2]
    stranger = next(flow for flow in range(60) if flow not in event.flows)
    event.begun_ns = 10 * SECOND
    moves = {stranger: around(flows.flows[stranger].path)}
    event.take(steering.take(routes_of(flows, moves))[0], 11 * SECOND)
    assert math.isinf(event.reaction_ms)
    moves |= {first: around(flows.flows[first].path), second: flows.flows[second].path}
    moved, followed = steering.take(routes_of(flows, moves))
    assert [flow for flow, _ in moved] == followed == [first]
    event.take(moved, 12 * SECOND)
    moves[second] = around(moves[second])
    event.take(steering.take(routes_of(flows, moves))[0], 13 * SECOND)
    assert (event.reaction_ms, event.decided, event.source) == (2000.0, 2, flows.flows[first].path[0])


def test_event_seen_too_late_never_was(flows: Flows) -> None:
    event = next_event(flows, np.random.default_rng(1), None)
    flow = min(event.flows)
    event.begun_ns = 0
    event.take([(flow, around(flows.flows[flow].path))], 5 * SECOND)
    assert math.isinf(event.reaction_ms)


def test_next_event_shares_no_flow_with_the_last(flows: Flows) -> None:
    rng, before = np.random.default_rng(3), None
    for _ in range(20):
        event = next_event(flows, rng, before)
        assert before is None or not before.flows & event.flows
        assert event.heavy < event.flows
        before = event


def test_steering_lets_flows_back_to_their_first_path(flows: Flows) -> None:
    steering, first = Steering(flows), flows.flows[5].path
    assert steering.take(routes_of(flows, {5: around(first)})) == ([(5, around(first))], [5])
    assert steering.take(routes_of(flows, {})) == ([], [5])
    assert flows.flows[5].path == first


def test_steering_counts_routes_of_another_length(flows: Flows) -> None:
    steering = Steering(flows)
    moved, followed = steering.take(routes_of(flows, {0: ("leaf1", "spine1", "leaf2", "spine2", "leaf3")}))
    assert (len(moved), followed, steering.unroutable) == (1, [], 1)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3.0, 1.0, 2.0], 0.5, 2.0), ([3.0, 1.0, 2.0], 0.99, 3.0), ([1.0], 0.5, 1.0), ([], 0.5, math.inf)],
)
def test_percentile_is_one_of_the_values(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def outcome(events: tuple[Event, ...], counters: dict[str, int], sent: int) -> Outcome:
    return Outcome(events, sent, 1.0, {}, {}, {"paths": 0.5, CLIENT: 0.7}, {}, counters, {}, 1)


def test_figures_count_what_nothing_tells_of(flows: Flows) -> None:
    event = next_event(flows, np.random.default_rng(1), None)
    event.begun_ns = 0
    event.take([(flow, around(flows.flows[flow].path)) for flow in sorted(event.heavy)[::2]], SECOND)
    told = dict.fromkeys(COUNTED, 10)
    late = Event(event.link, event.flows, event.heavy, 0)
    results = figures(
        {GOAL_10K: outcome((event, event, late), told, 43), MANY_FLOWS: outcome((event,), told, 41)},
    )
    assert tuple(results) == NAMES
    assert results["reaction_p50_ms_10k"] == 1000.0
    assert results["reaction_p99_ms_10k"] is None
    assert results["events_seen_50k"] is None
    assert results["dropped_silently"] == 4
    assert results["status_max_s"] == 0.5
    share = results["flows_decided_20000"]
    assert share == round(-(-len(event.heavy) // 2) / len(event.heavy), 4)


def test_status_poll_keeps_the_longest_wait() -> None:
    now_s, answers = [0.0], asyncio.Queue[float]()

    async def ask() -> int:
        now_s[0] += await answers.get()
        return int(now_s[0])

    async def polled() -> None:
        poll = StatusPoll(ask, lambda: now_s[0])
        task = asyncio.create_task(poll.run())
        for took_s in (1.0, 3.0, 2.0):
            answers.put_nowait(took_s)
        await until(lambda: poll.answers == 3)
        assert (poll.longest_s, poll.newest) == (3.0, 6)
        while poll.answers < 4:
            answers.put_nowait(0.0)
            await asyncio.sleep(0.01)
        with poll.excused():
            now_s[0] += 100.0
            assert poll.longest_s == 3.0
        task.cancel()

    asyncio.run(polled())
