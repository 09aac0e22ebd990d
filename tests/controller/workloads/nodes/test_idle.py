"""Criteria for idle containers, and their maximum idle time."""

from __future__ import annotations

from dataclasses import replace

from controller.apiserver.resources.hardware import DeviceShare
from controller.workloads.nodes.deciding.idle import (
    Activity,
    DeviceActivity,
    device_share,
    idle_reason,
    limit_s,
    observe,
)
from controller.workloads.nodes.deciding.values import IdleTerms
from controller.workloads.nodes.settings import IdleSection

S = 10**9
TERMS = IdleTerms(limit_s=None, cpu_share=0.01, network_bps=10_000, slow_start_ns=5 * S, last_copy_factor=4.0)


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


def test_a_pod_with_a_busy_device_is_not_idle() -> None:
    """Half a hundredth of a core launches the kernels of a busy GPU."""
    for device, since_ns in ((0.0, 0), (0.005, 0), (0.01, 10 * S), (1.0, 10 * S)):
        before = Activity(0, 0, 0)
        assert observe(before, 10 * S, 50 * 10**6, 0, TERMS, device=device).since_ns == since_ns


def test_a_whole_devices_use_is_its_holders() -> None:
    held = (DeviceShare(number=1),)
    assert device_share("a", held, {1: DeviceActivity(0.42)}, TERMS) == 0.42
    assert device_share("a", held, {1: DeviceActivity(0.0)}, TERMS) == 0.0
    # Video engines are seen by process alone.
    assert device_share("a", held, {1: DeviceActivity(0.0, {"a": 0.3})}, TERMS) == 0.3
    both = (DeviceShare(number=0), DeviceShare(number=1))
    assert device_share("a", both, {0: DeviceActivity(0.0), 1: DeviceActivity(0.9)}, TERMS) == 0.9
    assert device_share("a", (), {1: DeviceActivity(0.9)}, TERMS) == 0.0


def test_a_shared_devices_use_is_of_pods_whose_processes_compute() -> None:
    half = (DeviceShare(number=0, thousandths=500),)
    activities = {0: DeviceActivity(0.9, {"a": 0.9})}
    assert device_share("a", half, activities, TERMS) == 0.9
    assert device_share("b", half, activities, TERMS) == 0.0
    assert device_share("b", half, {0: DeviceActivity(0.9, {"a": 0.5}, others=0.4)}, TERMS) == 0.4
    # Without any process, nobody knows whose it is.
    assert device_share("b", half, {0: DeviceActivity(0.9)}, TERMS) == 0.9


def test_a_device_that_reports_nothing_counts_as_busy() -> None:
    held = (DeviceShare(number=0),)
    assert device_share("a", held, {}, TERMS) == device_share("a", held, {0: DeviceActivity()}, TERMS) == 1.0
    assert device_share("a", held, {}, replace(TERMS, unknown_device_is_busy=False)) == 0.0


def test_nodes_reap_by_default_and_pods_may_object() -> None:
    terms = IdleSection().terms
    assert terms.limit_s == 8 * 86_400  # a pod that works once a week stays
    assert limit_s(None, "i", {}, {}, terms) == terms.limit_s
    assert limit_s(60.0, "i", {}, {}, terms) == 60
    assert limit_s("never", "i", {}, {}, terms) is None
    assert limit_s(None, "i", {}, {}, IdleSection(limit_s=None).terms) is None
    assert limit_s(None, "i", {"i": 1}, {"i": 6 * S}, terms) == 4 * terms.limit_s


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
