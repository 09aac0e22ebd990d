"""Causes of waits, from the states of a worker's link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.values import LinkState
from controller.network.aggregation.stragglers import Cause, stragglers
from dataplane.topology.values import LinkKey
from tests.collectors.history.samples import job, link

IDLE = replace(link(delay_ns=100, utilisation=0.1), queue_occupancy_frames=0.0, loss=0.0)


@pytest.mark.parametrize(
    ("up", "down", "cause"),
    [
        ({}, {}, Cause.COMPUTE),
        ({"utilisation": 0.95}, {}, Cause.CABLE),
        ({}, {"utilisation": 0.8}, Cause.CABLE),
        ({"loss": 0.01}, {}, Cause.LOSS),
        ({"delay_mean_ns": 1_500}, {"delay_mean_ns": 600}, Cause.QUEUE),
        ({"loss": None}, {"loss": None}, Cause.COMPUTE),
        ({"age_ns": None, "utilisation": 0.9}, {}, Cause.COMPUTE),
        ({"age_ns": None}, {"age_ns": None}, Cause.NOT_MEASURED),
    ],
)
def test_late_worker_has_the_cause_its_link_shows(
    up: dict[str, float | None], down: dict[str, float | None], cause: Cause
) -> None:
    links: dict[LinkKey, LinkState] = {
        LinkKey("h2", "s2"): replace(IDLE, **up),  # type: ignore[arg-type]
        LinkKey("s2", "h2"): replace(IDLE, **down),  # type: ignore[arg-type]
        LinkKey("h1", "s2"): IDLE,
    }
    first, second = stragglers([job()], links)
    assert (first.worker, first.job, first.at, first.cause) == ("h2", "resnet", "s2", cause)
    assert (second.worker, second.wait_caused_ns, second.cause) == ("h1", 250, Cause.COMPUTE)


def test_link_figures_are_those_of_the_worse_direction() -> None:
    links = {
        LinkKey("h2", "s2"): replace(IDLE, utilisation=0.3, queue_occupancy_frames=4.0),
        LinkKey("s2", "h2"): replace(IDLE, loss=0.0005),
    }
    row = stragglers([job()], links)[0]
    assert (row.used, row.queue_frames, row.loss, row.repeated_per_item) == (0.3, 4.0, 0.0005, 0.02)


def test_contributor_that_was_never_last_is_not_late() -> None:
    state = job()
    prompt = replace(state.children[1], wait_mean_ns=None, wait_max_ns=None, wait_caused_ns=0, last_share=0.0)
    rows = stragglers([replace(state, children=(state.children[0], prompt))], {})
    assert [(row.worker, row.cause) for row in rows] == [("h2", Cause.NOT_MEASURED), ("h1", Cause.NOT_LATE)]
