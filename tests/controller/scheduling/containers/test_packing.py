"""Fragmentation and stranding against plain twins: exact fractions, exhaustive device choices."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.hardware import WHOLE, Cluster, DeviceRequest, DeviceShare, Request, Shares, fragments
from controller.cluster.hardware.errors import HardwareError
from controller.scheduling.containers.fragmentation import Fragmentation
from controller.scheduling.containers.kernels.stranded import IMPOSSIBLE
from controller.scheduling.containers.stranding import Stranding, demands_of, values_of
from controller.scheduling.pods import PendingPod, Snapshot
from controller.scheduling.pods.workload import Workload
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.pods.clusters import GIB, MODELS, clusters, node

one_sort = st.builds(
    lambda count, milli, models: (DeviceRequest(DeviceKind.GPU, count, WHOLE if count > 1 else milli, models),),
    st.integers(1, 3),
    st.sampled_from((110, 250, 500, 750, WHOLE)),
    st.frozensets(st.sampled_from(MODELS)),
)
asked = st.builds(Request, st.integers(0, 6000), st.integers(0, 6 * GIB), st.one_of(st.just(()), one_sort))
workloads = st.dictionaries(asked, st.integers(1, 9), min_size=1, max_size=6).map(Workload.of)
two_sorts = st.builds(lambda first, other: first + other, one_sort, one_sort)


def ways(cluster: Cluster, name: str, request: Request) -> list[Shares]:
    """Return all allocations of a request that policies may choose: a share of each suitable device, else one."""
    if cluster.fits(name, request) is not None:
        return []
    held, node = cluster.held_of(name), cluster.node(name)
    if len(request.devices) != 1:
        return [cluster.choose(name, request)]
    wanted = request.devices[0]
    serving = [
        device.number
        for device in node.devices
        if wanted.accepts(device) and WHOLE - held.of(device.number).thousandths >= wanted.thousandths
    ]
    sets = [serving[: wanted.count]] if wanted.thousandths == WHOLE else [[number] for number in serving]
    shares = []
    for numbers in sets:
        devices = tuple(DeviceShare(number, wanted.thousandths) for number in numbers)
        shares.append(Shares(request.cpu_milli, request.memory_bytes, devices))
    return shares


def snapshot_of(cluster: Cluster, workload: Workload) -> Snapshot:
    return replace(Snapshot.of(cluster), workload=workload)


def expected_fragments(cluster: Cluster, name: str, held: Shares, workload: Workload) -> Fraction:
    pods = sum(count for _, count in workload.requests)
    return sum(
        (Fraction(count * fragments(cluster.node(name), held, request), pods) for request, count in workload.requests),
        Fraction(0),
    )


@given(cluster=clusters(), workload=workloads, request_=st.one_of(asked, st.builds(Request, devices=two_sorts)))
@settings(max_examples=60)
def test_fragments_fall_as_the_papers_sum_does(cluster: Cluster, workload: Workload, request_: Request) -> None:
    policy = Fragmentation(Fragmentation.Settings(coverage=1, with_memory=True, steps=1000))
    pod, snapshot = PendingPod("p", request_), snapshot_of(cluster, workload)
    points = policy.points(pod, snapshot, np.arange(len(cluster.nodes)))
    for row, name in enumerate(cluster.nodes):
        held = cluster.held_of(name)
        before = expected_fragments(cluster, name, held, workload)
        falls = [
            before - expected_fragments(cluster, name, held + way, workload) for way in ways(cluster, name, request_)
        ]
        if not falls:
            assert points[row] == 0
            continue
        best = 1 / (1 + np.exp(-float(max(falls)) / WHOLE))
        assert points[row] == pytest.approx(1000 * best, abs=1.001)
        chosen = policy.shares(pod, snapshot, row)
        fallen = before - expected_fragments(cluster, name, held + chosen, workload)
        # Rounded to steps: the first of equally good devices is taken.
        assert float(max(falls) - fallen) / WHOLE <= 0.02


@given(cluster=clusters(), workload=workloads, pods=st.lists(asked, min_size=1, max_size=6), data=st.data())
@settings(max_examples=40)
def test_memory_of_a_policy_changes_no_answer(
    cluster: Cluster, workload: Workload, pods: list[Request], data: st.DataObject
) -> None:
    old = Fragmentation(Fragmentation.Settings())
    for request in (*pods, *pods):
        snapshot, pod = snapshot_of(cluster, workload), PendingPod("p", request)
        rows = np.arange(len(cluster.nodes))
        if data.draw(st.booleans()):
            snapshot = replace(snapshot, columns=Snapshot.of(cluster).columns)
        new = Fragmentation(Fragmentation.Settings())
        assert old.points(pod, snapshot, rows).tolist() == new.points(pod, snapshot, rows).tolist()
        name = data.draw(st.sampled_from(list(cluster.nodes)))
        if cluster.fits(name, request) is None:
            cluster = cluster.take(name, cluster.choose(name, request))


@given(cluster=clusters(), workload=workloads, request_=st.one_of(asked, st.builds(Request, devices=two_sorts)))
@settings(max_examples=60)
def test_idle_rests_grow_as_the_plain_sum_does(cluster: Cluster, workload: Workload, request_: Request) -> None:
    policy = Stranding(Stranding.Settings(chances=7, shortage_milli=700))
    pod, snapshot = PendingPod("p", request_), snapshot_of(cluster, workload)
    grown, _ = policy.changes(pod, snapshot)
    points = policy.points(pod, snapshot, np.arange(len(cluster.nodes)))
    for row, name in enumerate(cluster.nodes):
        held = cluster.held_of(name)
        before = policy.idle(snapshot, row, held)
        growths = [policy.idle(snapshot, row, held + way) - before for way in ways(cluster, name, request_)]
        assert grown[row] == (min(growths) if growths else IMPOSSIBLE)
        if growths:
            chosen = policy.shares(pod, snapshot, row)
            assert policy.idle(snapshot, row, held + chosen) - before <= max(growths)
            if request_.devices and request_.devices[0].thousandths < WHOLE and len(request_.devices) == 1:
                wants_gpu = DeviceKind.GPU in demands_of(workload, 7)
                assert not wants_gpu or policy.idle(snapshot, row, held + chosen) - before == min(growths)
    assert points.max() == 1000
    assert (points[grown == grown.min()] == 1000).all()


@given(st.dictionaries(st.integers(1, WHOLE), st.integers(1, 5), max_size=4), st.integers(1, 9))
@settings(max_examples=25)
def test_a_rest_is_worth_what_the_pods_to_come_leave_of_it(sizes: dict[int, int], chances: int) -> None:
    pods = sum(sizes.values()) + 3
    offered = np.zeros(WHOLE + 1)
    for size, count in sizes.items():
        offered[size] = count / pods
    values = values_of(offered, chances)
    exact = [Fraction(0)]
    for rest in range(1, WHOLE + 1):
        fit = {size: Fraction(count, pods) for size, count in sizes.items() if size <= rest}
        share = sum(fit.values(), Fraction(0))
        never = (1 - share) ** chances
        filled = (
            sum((part * exact[rest - size] for size, part in fit.items()), Fraction(0)) / share if fit else Fraction(0)
        )
        exact.append(never * rest + (1 - never) * filled)
        if rest % 40 == 0:  # exact fractions over a thousand steps get slow
            exact[-1] = exact[-1].limit_denominator(10**15)
    assert values == pytest.approx([float(value) * 1000 for value in exact], abs=1.5)


def test_workload_states_needs_other_than_devices() -> None:
    half = Request(1000, 2 * GIB, (DeviceRequest(DeviceKind.GPU, 1, 500),))
    whole = Request(5000, 0, (DeviceRequest(DeviceKind.GPU, 1),))
    demand = demands_of(Workload.of({half: 2, whole: 1, Request(9000): 4}), 10)[DeviceKind.GPU]
    assert demand.cpu_milli == (2 * 1000 + 5000) // 2
    assert demand.memory_kib == 4 * GIB // 2 // 1024
    assert demand.value[0] == 0
    assert demand.value[499] == 499_000


def test_shared_devices_are_filled_and_cores_kept_for_free_ones() -> None:
    """Two halves share a device; a pod without devices leaves cores free on the node with devices."""
    half = Request(1000, 0, (DeviceRequest(DeviceKind.GPU, 1, 500),))
    cluster = Cluster.of([node("gpus", cores=2, gpus=["T4"]), node("bare", cores=2)])
    snapshot = snapshot_of(cluster.take("gpus", cluster.choose("gpus", half)), Workload.of({half: 9}))
    policy, rows = Stranding(Stranding.Settings()), np.arange(2)
    points = policy.points(PendingPod("p", Request(1000)), snapshot, rows)
    assert points[1] == 1000 > points[0]
    reasons = [policy.reason(PendingPod("p", request), snapshot, 0) for request in (Request(1000), half)]
    assert reasons == [f"expected idle devices change by {more}" for more in ("+0.500", "+0.000")]


def test_without_a_workload_nothing_is_preferred() -> None:
    snapshot = Snapshot.of(Cluster.of([node("a", gpus=["T4"]), node("b")]))
    for policy in (Stranding(Stranding.Settings()), Fragmentation(Fragmentation.Settings())):
        points = policy.points(PendingPod("p", Request(1000)), snapshot, np.arange(2))
        assert points[0] == points[1]
        assert policy.reason(PendingPod("p", Request(1000)), snapshot, 0) == "the workload is unknown"


def test_request_that_does_not_fit_gets_nothing() -> None:
    snapshot = snapshot_of(Cluster.of([node("a", gpus=["T4"])]), Workload.of({Request(1): 1}))
    pod = PendingPod("p", Request(devices=(DeviceRequest(DeviceKind.GPU, 2),)))
    for policy in (Stranding(Stranding.Settings()), Fragmentation(Fragmentation.Settings())):
        with pytest.raises(HardwareError, match="2 whole devices wanted, 1 free"):
            policy.shares(pod, snapshot, 0)
