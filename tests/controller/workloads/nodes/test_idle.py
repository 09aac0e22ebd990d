"""Criteria for idle containers, and their maximum idle time."""

from __future__ import annotations

from controller.workloads.nodes.deciding.idle import Activity, idle_reason, limit_s, observe
from controller.workloads.nodes.deciding.values import IdleTerms

S = 10**9
TERMS = IdleTerms(cpu_share=0.01, network_bps=10_000, slow_start_ns=5 * S, last_copy_factor=4.0)


def after(*looks: tuple[int, int, int | None]) -> Activity:
    """Return a pod's activity after observations of (seconds, CPU time in ms, bit/s)."""
    activity = None
    for seconds, cpu_ms, bps in looks:
        activity = observe(activity, seconds * S, cpu_ms * 10**6, bps, TERMS)
    assert activity is not None
    return activity


def test_idle_pods_neither_compute_nor_communicate() -> None:
    assert after((0, 0, None), (10, 100, None)).since_ns == 0  # a hundredth of a CPU does not exceed the limit
    assert after((0, 0, None), (10, 101, None)).since_ns == 10 * S
    assert after((0, 0, 0), (10, 0, 10_000)).since_ns == 0
    assert after((0, 0, 0), (10, 0, 10_001)).since_ns == 10 * S
    assert after((0, 0, 0), (10, 5000, 0), (20, 5000, 0), (30, 5000, 0)).since_ns == 10 * S


def test_recreated_container_starts_over() -> None:
    assert after((0, 900, None), (10, 900, None), (20, 3, None)).since_ns == 20 * S


def test_the_last_of_a_slow_image_stays_longer() -> None:
    slow, quick = {"i": 6 * S}, {"i": 4 * S}
    assert limit_s(60, "i", {"i": 1}, slow, TERMS) == 240
    assert limit_s(60, "i", {"i": 2}, slow, TERMS) == 60
    assert limit_s(60, "i", {"i": 1}, quick, TERMS) == 60
    assert limit_s(60, "i", {"i": 1}, {}, TERMS) == 60


def test_reason_has_both_times() -> None:
    activity = Activity(50 * S, 0, since_ns=10 * S)
    assert idle_reason(activity, 69 * S, 60) is None
    assert idle_reason(activity, 70 * S, 60) == "idle for 60 s, its limit is 60 s"
