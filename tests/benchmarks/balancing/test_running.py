"""Clusters in virtual time, and their optimum: invariants for all settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.balance.allocation import Allocation, Handover, hand_over
from controller.balance.allocation.handover import Holding
from controller.balance.rules import IntervalRule, PlatformRule
from tests.benchmarks.balancing.clusters import (
    DEVICES,
    HIGH_MHZ,
    LEAST_UNITS,
    NOMINAL_MHZ,
    UNIT_TOPS,
    UNITS,
    Cluster,
    ClusterKind,
    cluster,
)
from tests.benchmarks.balancing.family import FULL, Pattern
from tests.benchmarks.balancing.forms import COMPARED, P_ONLY, Compared
from tests.benchmarks.balancing.optimum import optimum
from tests.benchmarks.balancing.running import Driver, run

MINUTES = 12


def saturated() -> Cluster:
    """The example's cluster with work that always waits, no pause."""
    example = cluster(ClusterKind.EXAMPLE, Pattern.HEAVY, 1, MINUTES)
    devices = tuple(
        replace(device, offered_tops=device.offered_tops * 0 + FULL * device.jobs[0].limit_tops)
        for device in example.devices
    )
    return replace(example, devices=devices)


def test_the_optimum_of_the_example_is_what_paper_and_pencil_say() -> None:
    # Four buses carry half of what 25 units compute; with overclocking these take 25 / 2 / 1.1 units each. The rest of
    # the 200 compute for the others, whose bus carries twice their initial load.
    bus_bound = UNITS * UNIT_TOPS / 2
    left = (UNITS * DEVICES - 4 * (UNITS / 2) / (HIGH_MHZ / NOMINAL_MHZ)) / 4
    cores_bound = left * UNIT_TOPS * HIGH_MHZ / NOMINAL_MHZ
    assert optimum(saturated()).work_tera == pytest.approx(4 * (bus_bound + cores_bound) * MINUTES * 60, rel=1e-6)


def test_open_loop_is_limited_by_the_slower_of_bus_and_cores() -> None:
    outcome = run(saturated(), Driver("open"))
    expected = 4 * (UNITS * UNIT_TOPS / 2 + UNITS * UNIT_TOPS) * MINUTES * 60
    assert outcome.work_tera == pytest.approx(expected, rel=1e-3)
    assert outcome.changes_per_minute == 0.0


@pytest.mark.parametrize("kind", list(ClusterKind))
@pytest.mark.parametrize("compared", COMPARED, ids=lambda entry: entry.name)
def test_nobody_does_more_than_the_optimum_nor_more_than_comes(kind: ClusterKind, compared: Compared) -> None:
    example = cluster(kind, Pattern.STEPS, 3, MINUTES)
    done = run(example, compared.driver).work_tera
    assert 0.0 < done <= optimum(example).work_tera * (1 + 1e-9)
    assert done <= sum(device.offered_tops.sum() for device in example.devices) * 60.0


@pytest.mark.parametrize("rule", [IntervalRule(), PlatformRule()], ids=["table", "platform"])
def test_no_unit_is_in_two_places_and_minimum_shares_are_kept(
    rule: IntervalRule | PlatformRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    def watched(total: int, now: Mapping[str, Handover], shares: Allocation) -> tuple[Holding, ...]:
        holdings = hand_over(total, now, shares)
        seen.append(
            (sum(holding.units for holding in holdings), min(holding.units - holding.leaving for holding in holdings))
        )
        return holdings

    monkeypatch.setattr("tests.benchmarks.balancing.running.hand_over", watched)
    run(cluster(ClusterKind.MIXED, Pattern.BURSTY, 2, MINUTES), Driver("watched", rule=rule))
    assert seen
    assert max(total for total, _ in seen) <= UNITS * DEVICES
    assert min(least for _, least in seen) >= LEAST_UNITS


def test_a_run_is_the_same_each_time() -> None:
    example = cluster(ClusterKind.MIXED, Pattern.DIURNAL, 5, MINUTES)
    assert run(example, P_ONLY.driver) == run(example, P_ONLY.driver)
