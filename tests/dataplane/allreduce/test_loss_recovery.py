"""Pace and recovery in virtual time: the share of the links' rate, and useless transmissions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.dataplane.allreduce.simulating import Network, Run, Simulation

BLOCKS = 1000
MANY = 2000
"""Blocks enough to outweigh the fixed costs of an all-reduce, such as a probe or the first timeout."""


@contextmanager
def _simulation(workers: int, window: int, network: Network) -> Iterator[Simulation]:
    simulation = Simulation(workers, window, network)
    try:
        yield simulation
    finally:
        simulation.close()


def _second(workers: int, window: int, network: Network, blocks: int = BLOCKS) -> Run:
    """Return the second all-reduce's run: round trips are known by then."""
    with _simulation(workers, window, network) as simulation:
        simulation.all_reduce(blocks)
        return simulation.all_reduce(blocks)


def test_nothing_is_in_vain_where_nothing_is_lost() -> None:
    run = _second(4, 64, Network())
    assert run.share > 0.99
    assert (run.repeated, run.cuts) == (0, 0)


@pytest.mark.parametrize(
    ("workers", "window", "loss", "share"),
    [(4, 64, 0.01, 0.85), (4, 64, 0.05, 0.5), (8, 256, 0.01, 0.8), (8, 256, 0.05, 0.35), (4, 16, 0.01, 0.65)],
)
def test_loss_costs_little_more_than_what_has_to_be_sent_again(
    workers: int, window: int, loss: float, share: float
) -> None:
    run = _second(workers, window, Network(loss=loss))
    assert run.share > share
    # An item is sent again by all if any worker's contribution is lost, by one if a result is.
    assert run.more < 2 * (workers + 1) * loss


@pytest.mark.parametrize("limit_s", [50e-6, 200e-6, 2e-3])
def test_queues_that_overflow_make_the_window_smaller(limit_s: float) -> None:
    run = _second(4, 256, Network(limit_s=limit_s))
    assert run.share > 0.95
    assert run.more < 0.1
    assert limit_s > 1e-3 or (run.cuts > 0 and run.window < 64)


def test_marks_keep_queues_from_overflowing() -> None:
    run = _second(4, 256, Network(mark_s=100e-6, limit_s=400e-6))
    assert run.share > 0.95
    assert (run.repeated, run.overflown) == (0, 0)
    assert run.cuts > 0


def test_reordered_packets_are_only_briefly_taken_for_lost() -> None:
    run = _second(4, 64, Network(overtaken=0.05, delay_s=17e-6), MANY)
    assert run.share > 0.98
    assert run.more < 0.01
    assert run.undone == run.cuts > 0


def test_who_is_late_costs_others_a_probe_now_and_then() -> None:
    run = _second(4, 64, Network(late_s=0.02), MANY)
    assert run.share > 0.98
    assert run.stalls > 0
    assert run.more < 0.01


def test_what_waits_for_one_result_is_not_held_up_by_another() -> None:
    """A window of four round trips suffices for occasional losses: later items go on."""
    assert _second(2, 32, Network(loss=0.002)).share > 0.95
