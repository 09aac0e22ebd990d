"""Beliefs about links: when the newest readings decide, ahead of the means over the window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collectors.values import DelaySource, LinkState
from controller.network.algorithms.link_table import LinkTable
from controller.network.paths.deciding.beliefs import Beliefs
from controller.network.paths.settings import DecideSettings
from dataplane.topology.families import ring
from dataplane.topology.values import LinkKey

RATE_BPS = 100_000_000
FRAME_NS = 1538 * 8 * 1_000_000_000 // RATE_BPS
LINK = LinkKey("s1", "s2")


def beliefs() -> Beliefs:
    table = LinkTable.of(ring(3))
    table.rate_bps[:] = RATE_BPS
    return Beliefs(table, DecideSettings())


def sudden(made: Beliefs) -> LinkState:
    """A link 100 ms into an overload: the means over half a second still show little of it."""
    delay_ns = int(made.nominal_ns[made.table.link_number[LINK]])
    return LinkState(
        LINK,
        RATE_BPS,
        delay_ns + 15 * FRAME_NS,
        delay_ns + FRAME_NS,
        delay_ns + 80 * FRAME_NS,
        15.0,
        0.35,
        RATE_BPS * 65 // 100,
        None,
        0,
        500,
        DelaySource.STAMPS,
        delay_ewma_ns=delay_ns + 40 * FRAME_NS,
        newest_delay_ns=delay_ns + 80 * FRAME_NS,
        newest_queue_frames=80.0,
        newest_utilisation=0.99,
    )


def is_crowded(made: Beliefs, state: LinkState) -> bool:
    # A second link of the same rate shows the idle delay beyond propagation.
    idle = replace(state, link=LinkKey("s2", "s3"), delay_mean_ns=int(made.nominal_ns[0]), newest_queue_frames=0.0)
    made.observe({LINK: state, idle.link: idle})
    return bool(made.crowded[made.table.link_number[LINK]])


def load_bps(made: Beliefs) -> int:
    return int(made.load_bps[made.table.link_number[LINK]])


def test_newest_readings_that_agree_decide() -> None:
    made = beliefs()
    assert is_crowded(made, sudden(made))
    assert load_bps(made) == pytest.approx(0.99 * RATE_BPS)


@pytest.mark.parametrize(
    "changes",
    [
        {"newest_utilisation": 0.8},
        {"newest_utilisation": None},
        {"newest_queue_frames": 3.0},
        {"newest_queue_frames": None},
        {"newest_delay_ns": 0},
        {"newest_delay_ns": None},
        {"age_ns": 2_000_000_000},
    ],
    ids=str,
)
def test_newest_readings_that_disagree_wait_for_the_mean(changes: dict[str, float | None]) -> None:
    made = beliefs()
    state = replace(sudden(made), **changes)  # type: ignore[arg-type]
    assert not is_crowded(made, state)
    assert load_bps(made) <= RATE_BPS * 35 // 100


def test_newest_load_below_the_mean_changes_nothing() -> None:
    made = beliefs()
    state = replace(sudden(made), available_bps=0, utilisation=1.0, newest_utilisation=0.95)
    assert is_crowded(made, state)
    assert load_bps(made) == RATE_BPS


def crowded_by_the_mean(made: Beliefs, *, queue: float, samples: int, offered: float) -> bool:
    """Return whether a mean load of 95 % makes a link crowded, with a queue of full frames and flows of a share."""
    delay_ns = int(made.nominal_ns[made.table.link_number[LINK]]) + round(queue * FRAME_NS)
    state = replace(
        sudden(made),
        delay_mean_ns=delay_ns,
        delay_ewma_ns=delay_ns,
        newest_delay_ns=delay_ns,
        newest_queue_frames=queue,
        newest_utilisation=0.95,
        utilisation=0.95,
        available_bps=RATE_BPS * 5 // 100,
        samples=samples,
    )
    offered_bps = np.zeros_like(made.load_bps)
    offered_bps[made.table.link_number[LINK]] = round(offered * RATE_BPS)
    made.offer(offered_bps, offered_bps)
    return is_crowded(made, state)


@pytest.mark.parametrize(
    ("queue", "samples", "offered", "crowded"),
    [
        (2.1, 12, 0.4, False),  # a burst that filled one reading, and then silence
        (2.1, 12, 0.9, True),  # the flows' rates say the same
        (2.1, 5000, 0.4, True),  # no chance in so many frames
        (4.0, 12, 0.4, False),
        (6.0, 12, 0.4, True),  # a queue that random arrivals do not make
        (1.9, 5000, 0.9, False),
    ],
)
def test_mean_load_needs_evidence(queue: float, samples: int, offered: float, crowded: bool) -> None:
    assert crowded_by_the_mean(beliefs(), queue=queue, samples=samples, offered=offered) is crowded
