"""Table entries that select the queues to watch."""

from __future__ import annotations

import pytest
from finsy import P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.tables.telemetry.queue_watch import QueueWatch
from controller.network.tables.telemetry.reporting import Reporting
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities


def written(topology: Topology, switch: str, *queues: QueueWatch) -> dict[tuple[int, int], dict[str, int]]:
    """Return a switch's watched queues: the action's arguments by port and queue."""
    levels: dict[tuple[int, int], dict[str, int]] = {}
    for key, entity in base_entities(topology, reporting=Reporting(queues=queues))[switch].items():
        if key.table == "queue_watch":
            assert isinstance(entity, P4TableEntry)
            assert isinstance(entity.action, P4TableAction)
            match = dict(entity.match or {})
            levels[match["egress_port"], match["queue_id"]] = dict(entity.action.args)
    return levels


def test_rule_without_a_place_covers_every_port(diamond: Topology) -> None:
    assert set(written(diamond, "a", QueueWatch(occupancy_frames=8))) == {(1, 0), (2, 0), (3, 0)}


def test_lower_thresholds_are_half_of_the_upper_ones(diamond: Topology) -> None:
    watch = QueueWatch(switch="a", port=2, queue=7, occupancy_frames=8, latency_ns=1_001, quota=5)
    assert written(diamond, "a", watch)[2, 7] == {
        "occupancy": 8,
        "latency_ns": 1_001,
        "clear_occupancy": 4,
        "clear_latency_ns": 500,
        "quota": 5,
    }
    assert written(diamond, "b", watch) == {}


def test_the_lowest_threshold_can_be_left_again(diamond: Topology) -> None:
    levels = written(diamond, "a", QueueWatch(occupancy_frames=1))[1, 0]
    assert (levels["clear_occupancy"], levels["latency_ns"], levels["clear_latency_ns"]) == (1, 0, 0)


def test_the_first_rule_for_a_queue_counts(diamond: Topology) -> None:
    levels = written(diamond, "a", QueueWatch(switch="a", port=2, latency_ns=5), QueueWatch(latency_ns=9))
    assert [levels[port, 0]["latency_ns"] for port in (1, 2, 3)] == [9, 5, 9]


@pytest.mark.parametrize(
    ("watch", "problem"),
    [
        (QueueWatch(), "needs occupancy_frames, latency or both"),
        (QueueWatch(switch="z", latency_ns=1), "no switch 'z' in topology diamond"),
        (QueueWatch(switch="a", port=9, latency_ns=1), "switch a has no cable at port 9"),
        (QueueWatch(latency_ns=5, clear_latency_ns=6), "clear_latency 6 ns is above latency 5 ns"),
        (QueueWatch(latency_ns=5, clear_occupancy_frames=6), "clear_occupancy_frames without occupancy_frames"),
    ],
)
def test_impossible_queue_watch_is_refused(diamond: Topology, watch: QueueWatch, problem: str) -> None:
    with pytest.raises(ControllerError, match=problem):
        base_entities(diamond, reporting=Reporting(queues=(watch,)))
