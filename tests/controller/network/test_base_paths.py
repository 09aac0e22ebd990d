"""Shortest paths by delay, then hops."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from controller.network.base_paths import base_paths, next_hops
from dataplane.topology.values import Topology

MakeTopology = Callable[..., Topology]


def test_equal_cost_links_are_kept_in_order_of_port(diamond: Topology) -> None:
    hops = next_hops(diamond)
    assert [link.tail.port for link in hops["d"]["a"]] == [2, 3]
    assert list(base_paths(hops, "a", "d")) == [("a", "b", "d"), ("a", "c", "d")]


def test_less_delay_wins_over_fewer_hops(diamond_of: MakeTopology) -> None:
    topology = diamond_of((1000, 1000, 9000, 1000, 1000))
    assert list(base_paths(next_hops(topology), "b", "d")) == [("b", "c", "d")]


def test_hops_break_ties_in_delay(diamond_of: MakeTopology) -> None:
    topology = diamond_of((1000, 9000, 2000, 1000, 1000))
    assert list(base_paths(next_hops(topology), "b", "d")) == [("b", "d")]


def test_a_switch_reaches_itself_without_a_hop(diamond: Topology) -> None:
    assert list(base_paths(next_hops(diamond), "a", "a")) == [("a",)]


def test_links_of_no_delay_make_no_loop(diamond_of: MakeTopology) -> None:
    hops = next_hops(diamond_of((0, 0, 0, 0, 0)))
    assert all(len(set(path)) == len(path) for s in "abcd" for t in "abcd" for path in base_paths(hops, s, t))


@given(delays=st.tuples(*[st.integers(0, 5)] * 5))
def test_every_next_hop_is_nearer(diamond_of: MakeTopology, delays: tuple[int, ...]) -> None:
    hops = next_hops(diamond_of(delays))
    for destination in "abcd":
        for source in "abcd":
            paths = list(base_paths(hops, source, destination))
            assert paths
            assert all(path[-1] == destination and len(set(path)) == len(path) for path in paths)
