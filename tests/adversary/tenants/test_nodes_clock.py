"""Clock changes: no lease of a node or a centre ends early."""

from __future__ import annotations

from controller.apiserver.leases import Leases
from controller.apiserver.resources import Centre, Metadata, Node
from controller.apiserver.resources.centre import CentreSpec, CentreStatus
from controller.apiserver.resources.node import NodeSpec, NodeStatus

S = 10**9


def node(heartbeat_ns: int | None, lease_s: float = 40.0) -> Node:
    return Node(
        metadata=Metadata(name="h1"),
        spec=NodeSpec(lease_s=lease_s),
        status=NodeStatus(manager="a", heartbeat_ns=heartbeat_ns),
    )


def test_a_wall_clock_that_is_stepped_ends_no_lease() -> None:
    now = [1000 * S]
    leases = Leases(lambda: now[0])
    for wall_ns in (5 * S, 86_400 * S, 7 * S):  # reports before, and after steps of a day there and back
        leases.note(node(wall_ns))
        now[0] += 39 * S
        assert not leases.is_over(node(wall_ns))
    now[0] += 1 * S
    assert leases.is_over(node(7 * S))


def test_a_report_that_was_not_seen_counts_from_its_first_sight() -> None:
    """As after a server's start, or where several servers share a storage."""
    now = [1000 * S]
    leases = Leases(lambda: now[0])
    assert not leases.is_over(node(5 * S))
    now[0] += 39 * S
    assert not leases.is_over(node(5 * S))
    assert not leases.is_over(node(6 * S))  # another server has got one meanwhile
    now[0] += 39 * S
    assert not leases.is_over(node(6 * S))
    now[0] += 1 * S
    assert leases.is_over(node(6 * S))


def test_a_node_that_never_reported_has_no_lease() -> None:
    assert Leases(lambda: 0).is_over(node(None))


def test_nodes_and_centres_of_one_name_are_told_apart() -> None:
    now = [0]
    leases = Leases(lambda: now[0])
    centre = Centre(
        metadata=Metadata(name="h1"), spec=CentreSpec(lease_s=40.0), status=CentreStatus(heartbeat_ns=5 * S)
    )
    leases.note(centre)
    now[0] += 40 * S
    assert not leases.is_over(node(5 * S))
    assert leases.is_over(centre)
