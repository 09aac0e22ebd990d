"""Devices of pods' operators are chosen at placement: nodes are ranked by the operators' time there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from controller.acceleration.policies.pods import PodDevices
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster, DeviceRequest, Node, Request
from controller.common.errors import SchedulerError
from controller.scheduling.framework.plugins import PODS, make_policy
from controller.scheduling.framework.policies import MOST_POINTS
from controller.scheduling.framework.profiles import PolicySettings, WeightedScore
from controller.scheduling.pods import PendingPod, PodProfile, PodProfileSettings, Snapshot, decide
from controller.scheduling.pods.profiles import ACCELERATED
from controller.scheduling.settings import SchedulerSettings
from dataplane.topology.values import Bus, BusKind, DeviceKind
from tests.controller.acceleration.policies.test_tasks import COPY, GEMM, UNKNOWN, counts
from tests.controller.scheduling.pods.clusters import GIB, node

HARDWARE = """\
millrace: 1
accelerators:
- {kind: gpu, name: T4, parallelism: 100}
- {kind: gpu, parallelism: 1000}
- {kind: npu, parallelism: 10}
"""
ONE_GPU = Request(cpu_milli=1000, devices=(DeviceRequest(DeviceKind.GPU),))
NO_COSTS: CostMap | None = None


def on_bus(name: str, model: str, bytes_per_s: int) -> Node:
    machine = node(name, gpus=(model,))
    (device,) = machine.devices
    return dataclasses.replace(machine, devices=(dataclasses.replace(device, bus=Bus(BusKind.PCIE, bytes_per_s)),))


STATE = Snapshot.of(
    Cluster.of(
        (node("plain"), node("a100", gpus=("A100",)), node("t4", gpus=("T4",)), on_bus("slow-bus", "A100", 100_000_000))
    ),
    NO_COSTS,
)
NODES = np.arange(4)


def pod(*operators: str, request: Request = ONE_GPU) -> PendingPod:
    by_name = {"product": GEMM, "sum": COPY, "mystery": UNKNOWN}
    return PendingPod("p", request, operators=counts(*(by_name[name] for name in operators)))


@pytest.fixture
def policy(tmp_path: Path) -> PodDevices:
    path = tmp_path / "hardware.yaml"
    path.write_text(HARDWARE)
    made = make_policy(PODS, "operator-devices", {"hardware": str(path)}, ("points", "reason"))
    assert isinstance(made, PodDevices)
    return made


def chosen_devices(policy: PodDevices, asked: PendingPod, number: int) -> dict[str, str]:
    return {choice.operator: choice.device.value for choice in policy.operator_devices(asked, STATE, number)}


def test_pod_goes_to_the_node_with_the_fastest_operators(policy: PodDevices) -> None:
    plain, a100, t4, slow_bus = policy.points(pod("product"), STATE, NODES).tolist()
    assert a100 == MOST_POINTS
    assert a100 > t4 > plain
    assert a100 > slow_bus > plain
    assert policy.points(pod("product"), STATE, NODES[2:]).tolist()[0] == MOST_POINTS
    assert "product on the gpu: 0.0" in policy.reason(pod("product"), STATE, 1)
    assert "product on the T4: 0.1" in policy.reason(pod("product"), STATE, 2)


def test_pod_programs_get_device_kinds_by_any_name(policy: PodDevices) -> None:
    asked = pod("product", "sum", "mystery")
    for number in (1, 2):
        assert chosen_devices(policy, asked, number) == {"product": "gpu", "sum": "cpu", "mystery": "cpu"}
    assert chosen_devices(policy, asked, 0) == dict.fromkeys(("product", "sum", "mystery"), "cpu")


def test_of_a_part_of_a_device_a_pod_has_the_part(policy: PodDevices) -> None:
    part = Request(devices=(DeviceRequest(DeviceKind.GPU, thousandths=10, memory_bytes=GIB),))
    whole_s, part_s = (
        float(policy.reason(pod("product", request=request), STATE, 2).split(": ")[1].split()[0])
        for request in (ONE_GPU, part)
    )
    # A hundredth of a device of parallelism 100 is as fast as a core, which is not above the preset: CPU.
    assert whole_s < 0.2
    assert part_s == pytest.approx(14.0)


@pytest.mark.parametrize("asked", [pod(), pod("product", request=Request(cpu_milli=1000))], ids=["silent", "bare"])
def test_pod_without_devices_or_operators_is_left_alone(policy: PodDevices, asked: PendingPod) -> None:
    assert policy.is_neutral(asked, STATE)
    assert policy.points(asked, STATE, NODES).tolist() == [MOST_POINTS] * 4


def test_a_profile_that_is_there_by_default_places_by_it() -> None:
    assert ACCELERATED in SchedulerSettings().profiles
    profile = PodProfile.of(ACCELERATED)
    choice = decide(profile, pod("product"), STATE)
    assert STATE.columns.names[choice.candidate] in ("a100", "t4")
    (told,) = profile.operator_devices(choice.subject, STATE, choice.candidate)
    assert (told.operator, told.device) == ("product", DeviceKind.GPU)
    assert told.seconds is not None
    assert 0 < told.seconds < 10
    assert PodProfile.of(PodProfileSettings()).operator_devices(choice.subject, STATE, choice.candidate) == ()


def test_a_policy_that_names_no_device_of_the_pods_is_one_line(policy: PodDevices) -> None:
    class Wild(PodDevices):
        def operator_devices(self, pod: PendingPod, snapshot: Snapshot, node: int) -> tuple[OperatorDevice, ...]:
            return (OperatorDevice(operator="product", device=DeviceKind.TPU),)

    scores = (WeightedScore("wild", 1, Wild(PodDevices.Settings())),)
    profile = dataclasses.replace(PodProfile.of(PodProfileSettings()), scores=scores)
    with pytest.raises(SchedulerError, match="policy wild: pod p: operator 'product' should run on a tpu"):
        profile.operator_devices(pod("product"), STATE, 1)


def test_task_policies_are_not_pod_policies() -> None:
    settings = PodProfileSettings(scores=(PolicySettings(policy="thrift"),))
    with pytest.raises(SchedulerError, match="policy thrift is for tasks; those for pods are best-fit"):
        PodProfile.of(settings)
