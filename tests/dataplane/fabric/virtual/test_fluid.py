"""Fluids on links: backlogs, losses, what passes on, and what packets meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dataplane.fabric.virtual.fluid import FluidFlows, FluidLinks

MS = 1_000_000
STEP_NS = 8 * MS
FRAME_BITS = 8_000.0


def flows(routes: Sequence[Sequence[int]], rates: Sequence[float], links: int, *, random: float = 0.0) -> FluidFlows:
    longest = max(map(len, routes))
    hops = np.array([[*route, *[links] * (longest - len(route))] for route in routes], np.int64)
    count = len(routes)
    return FluidFlows(hops, np.array(rates), np.full(count, FRAME_BITS), np.full(count, random))


def links_with(rates: Sequence[int], queue_frames: int, of_flows: FluidFlows) -> FluidLinks:
    links = FluidLinks(rates, [queue_frames] * len(rates), STEP_NS)
    links.take_flows(of_flows)
    links.solve()
    return links


def pass_time(links: FluidLinks, until_ns: int) -> None:
    for now_ns in range(STEP_NS, until_ns + 1, STEP_NS):
        links.advance(now_ns)
        links.solve()


def test_backlog_grows_by_excess_and_drains_by_room() -> None:
    links = links_with([10_000_000], 100, flows([[0]], [14e6], 1))
    assert links.load(0, 100 * MS).backlog_frames == pytest.approx(50)  # 4 Mbit/s for 100 ms
    assert links.wait_ns(0, 100 * MS) == pytest.approx(40 * MS)
    links.advance(100 * MS)
    links.take_flows(flows([[0]], [6e6], 1))
    links.solve()
    assert links.load(0, 150 * MS).backlog_frames == pytest.approx(25)
    assert links.load(0, 300 * MS).backlog_frames == 0


def test_full_queue_loses_the_excess() -> None:
    links = links_with([10_000_000], 9, flows([[0]], [12.5e6], 1))
    pass_time(links, 800 * MS)
    load = links.load(0, 800 * MS)
    assert load.backlog_frames == pytest.approx(10)  # nine wait, one is sent
    assert load.sent_bps == 10e6
    assert load.loss == pytest.approx(0.2)
    assert links.chance(0, 800 * MS) == pytest.approx(0.8)
    # All that arrived was sent, was lost, or waits.
    assert links.sent_bits[0] + links.lost_bits[0] + 10 * FRAME_BITS == pytest.approx(12.5e6 * 0.8)


def test_next_link_gets_what_a_full_one_lets_pass() -> None:
    routes = [[0, 1], [0, 2], [2]]
    links = links_with([10_000_000, 10_000_000, 10_000_000], 9, flows(routes, [15e6, 5e6, 1e6], 3))
    pass_time(links, 80 * MS)
    assert links.offered_bps == pytest.approx([20e6, 7.5e6, 3.5e6])


def test_draining_backlog_goes_on_to_the_next_link() -> None:
    routes = [[0, 1]]
    links = links_with([10_000_000, 100_000_000], 1_000, flows(routes, [20e6], 2))
    pass_time(links, 400 * MS)
    links.take_flows(flows(routes, [5e6], 2))
    links.solve()
    assert links.offered_bps[1] == pytest.approx(10e6)
    for step in range(1, 200):
        links.advance(400 * MS + step * STEP_NS)
        links.solve()
    assert links.offered_bps[1] == pytest.approx(5e6)
    arrived = 20e6 * 0.4 + 5e6 * 199 * STEP_NS / 1e9
    assert links.sent_bits[1] == pytest.approx(arrived, rel=0.01)


def test_broken_link_sends_into_nothing() -> None:
    links = links_with([10_000_000, 10_000_000], 9, flows([[0, 1]], [5e6], 2))
    links.passes[0] = 0.0
    links.solve()
    assert links.offered_bps == pytest.approx([5e6, 0])


def test_circle_of_links_fills_and_settles() -> None:
    links = links_with([10_000_000] * 3, 9, flows([[0, 1, 2] * 5], [8e6], 3))
    pass_time(links, 80 * MS)
    assert links.load(0, 80 * MS).sent_bps == 10e6
    assert np.all(links.offered_bps < 30e6)


def test_packets_take_their_time_from_the_backlog() -> None:
    links = links_with([10_000_000], 100, flows([[0]], [9e6], 1))
    for number in range(100):
        links.add_packet(0, number * MS, 4_000)
    links.advance(100 * MS)
    # 9 + 4 Mbit/s arrive at 10; what was sent of the background is what arrived of it, but for its part of the backlog.
    assert links.load(0, 100 * MS).backlog_frames == pytest.approx(37.5, abs=1)
    assert links.sent_bits[0] == pytest.approx(10e6 * 0.1 - 100 * 4_000, abs=8_000)


def test_frames_of_one_slower_link_never_meet() -> None:
    alone = links_with([10_000_000, 10_000_000], 9, flows([[0, 1]], [8e6], 2, random=1.0))
    assert alone.random_wait(0, 0)[0] == pytest.approx(0.8)
    assert alone.random_wait(1, 0)[0] == pytest.approx(0, abs=1e-9)
    many = [[number, 10] for number in range(10)]
    together = links_with([10_000_000] * 11, 9, flows(many, [8e5] * 10, 11, random=1.0))
    probability, mean_ns = together.random_wait(10, 0)
    assert probability == pytest.approx(0.8 * 0.9)  # nine tenths of a frame's likely neighbours are of other links
    assert mean_ns == pytest.approx(0.8 * MS / (2 * (1 - 0.72)))
