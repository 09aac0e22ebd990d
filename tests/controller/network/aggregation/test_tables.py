"""Switch entries for aggregation other than jobs': congestion marks, reports, and invalid settings."""

from __future__ import annotations

import pytest
from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError
from controller.network.aggregation.settings import AggregationSettings
from controller.network.aggregation.tables import AggregationTables
from controller.network.intents import Worker
from controller.network.tables.aggregation import congestion_entity
from controller.network.tables.entities import EntityKey, key_of
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey
from tests.controller.network.aggregation.states import nominal

TOPOLOGY = leaf_spine(1, 2, 2)


def tables_of(settings: AggregationSettings) -> AggregationTables:
    """Return the tables of a fabric with one job in leaf1 with cleared cells."""
    made = AggregationTables(TOPOLOGY, settings)
    job = made.jobs.create([Worker("h1", 1), Worker("h2", 1)], nominal(TOPOLOGY), window=1, capacity=2)
    made.jobs.cleared(job.number, "leaf1")
    return made


def action(made: AggregationTables, key: EntityKey) -> P4TableAction | None:
    entity = made.wanted("leaf1").get(key)
    assert entity is None or isinstance(entity, P4TableEntry)
    chosen = None if entity is None else entity.action
    assert chosen is None or isinstance(chosen, P4TableAction)
    return chosen


@pytest.mark.parametrize(
    ("every", "slow_us", "expected"),
    [(16, 0, (15, 0)), (1, 500, (0, 500)), (0, 500, (0xFFFFFFFF, 500)), (0, 0, None)],
)
def test_report_entry_has_the_sampling_mask_and_slow_threshold(
    every: int, slow_us: int, expected: tuple[int, int] | None
) -> None:
    made = tables_of(AggregationSettings(report_every=every, report_slow_us=slow_us))
    report = action(made, key_of(P4TableEntry("aggregation_reports", match=P4TableMatch(job=1))))
    assert (None if report is None else (report.args["mask"], report.args["slow_us"])) == expected
    assert not any(key.table == "aggregation_reports" for key in made.wanted("leaf2"))


def test_mark_threshold_defaults_to_a_quarter_of_shortest_queue() -> None:
    key = key_of(congestion_entity(1))
    shortest = min(link.queue_frames for at, link in TOPOLOGY.directed_links.items() if at.src == "leaf1")
    for settings, frames in ((AggregationSettings(), shortest // 4), (AggregationSettings(mark_from_frames=7), 7)):
        mark = action(tables_of(settings), key)
        assert mark is not None
        assert mark.args["queue_frames"] == frames


def test_dead_links_are_the_same_until_others_die() -> None:
    made, dead = tables_of(AggregationSettings()), frozenset([LinkKey("leaf1", "spine1")])
    assert made.avoid(measured=dead)
    assert not made.avoid(measured=dead)
    assert made.avoid(measured=frozenset())


def test_settings_that_cannot_be_are_named() -> None:
    with pytest.raises(ControllerError, match=r"aggregation\.report_every: 3 is not a power of two"):
        AggregationTables(TOPOLOGY, AggregationSettings(report_every=3))
