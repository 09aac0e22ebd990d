"""Pods and groups of them."""

from __future__ import annotations

import pytest

from controller.cluster.hardware.requests import DeviceRequest, Request
from controller.cluster.workloads.errors import WorkloadError
from controller.cluster.workloads.values import Pod, PodGroup, Task
from dataplane.topology.values import DeviceKind

HALF = DeviceRequest(DeviceKind.GPU, 1, 500)
SERVER = Task("server", 0, Request(2000, 8, (HALF,)))
HELPER = Task("helper", 0, Request(250, 1), instances=2)


def test_pod_holds_the_sum_of_its_tasks() -> None:
    assert Pod("p", (SERVER, HELPER)).request == Request(2500, 10, (HALF,))
    two = Task("two", 0, SERVER.request, instances=2)
    assert Pod("p", (two,)).request == Request(4000, 16, (HALF, HALF))


def test_pods_and_groups_that_cannot_be_are_refused() -> None:
    with pytest.raises(WorkloadError, match="p: a pod without tasks"):
        Pod("p", ())
    with pytest.raises(WorkloadError, match="p: duplicate task server"):
        Pod("p", (SERVER, SERVER))
    pod = Pod("p", (SERVER,))
    assert PodGroup("g", (pod,), 1).least == 1
    with pytest.raises(WorkloadError, match="g: duplicate pod p"):
        PodGroup("g", (pod, pod), 1)
    for least in (0, 2):
        with pytest.raises(WorkloadError, match=f"g: {least} of 1 pods"):
            PodGroup("g", (pod,), least)
