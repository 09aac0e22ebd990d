"""Kubernetes nodes and pods as hardware, from the official client's models."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kubernetes import client as k8s

from controller.cluster.hardware import Cluster, DeviceRequest
from controller.common.errors import SchedulerError
from controller.scheduling.extender import objects
from controller.scheduling.extender.hardware import kinds_of, node_of, request_of
from controller.scheduling.extender.settings import DeviceResource
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.extender.kube_objects import a_node, a_pod, written

KIND_OF = kinds_of(())
GIB = 1 << 30


def node(model: k8s.V1Node) -> objects.Node:
    return msgspec.json.decode(written(model), type=objects.Node)


def pod(model: k8s.V1Pod) -> objects.Pod:
    return msgspec.json.decode(written(model), type=objects.Pod)


def container(name: str, restart_policy: str | None = None, **requests: str) -> k8s.V1Container:
    resources = k8s.V1ResourceRequirements(requests=requests)
    return k8s.V1Container(name=name, resources=resources, restart_policy=restart_policy)


def test_hardware_of_a_node() -> None:
    machine = node_of(
        node(a_node("n", cpu="7910m", memory="31Gi", nvidia_com__gpu="2", xilinx_com__fpga_u200="1")), KIND_OF
    )
    assert (machine.cpu_milli, machine.memory_bytes) == (7910, 31 * GIB)
    assert [(device.number, device.kind, device.model) for device in machine.devices] == [
        (0, DeviceKind.GPU, "nvidia.com/gpu"),
        (1, DeviceKind.GPU, "nvidia.com/gpu"),
        (2, DeviceKind.FPGA, "xilinx.com/fpga-u200"),
    ]


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("nvidia.com/gpu", DeviceKind.GPU),
        ("nvidia.com/gpu.shared", DeviceKind.GPU),
        ("nvidia.com/mig-1g.5gb", DeviceKind.GPU),
        ("amd.com/gpu", DeviceKind.GPU),
        ("google.com/tpu", DeviceKind.TPU),
        ("habana.ai/gaudi", DeviceKind.NPU),
        ("huawei.com/Ascend910", DeviceKind.NPU),
        ("xilinx.com/fpga-xilinx_u250_gen3x16_xdma_shell_3_1-0", DeviceKind.FPGA),
        ("nvidia.com/gpumem", None),
        ("nvidia.com/gpumem-percentage", None),
        ("nvidia.com/gpucores", None),
        ("huawei.com/Ascend910B-memory", None),
        ("example.com/dpu", None),
        ("ephemeral-storage", None),
        ("hugepages-2Mi", None),
    ],
)
def test_resources_of_device_plugins(resource: str, kind: DeviceKind | None) -> None:
    assert KIND_OF(resource) is kind


def test_settings_say_more_and_come_first() -> None:
    own = (
        DeviceResource(resource="example.com/dpu", kind=DeviceKind.DPU),
        DeviceResource(resource="nvidia.com/gpu.shared", kind=DeviceKind.XPU),
    )
    kind_of = kinds_of(own)
    assert [kind_of(name) for name in ("example.com/dpu", "nvidia.com/gpu.shared", "nvidia.com/gpu")] == [
        DeviceKind.DPU,
        DeviceKind.XPU,
        DeviceKind.GPU,
    ]


def test_a_slice_is_no_whole_device() -> None:
    has = node_of(node(a_node("n", nvidia_com__mig_1g="2")), KIND_OF)
    cluster = Cluster.of((has,))
    assert cluster.fits("n", request_of(pod(a_pod("p", nvidia_com__mig_1g="2")), KIND_OF)) is None
    refusal = cluster.fits("n", request_of(pod(a_pod("p", nvidia_com__gpu="1")), KIND_OF))
    assert "nvidia.com/gpu" in str(refusal)


def test_a_share_of_a_device_is_no_device() -> None:
    """HAMi's example: the node counts the slots of its GPUs, the pod asks for one with 3,000 MiB and 30 % of cores."""
    has = node_of(node(a_node("n", nvidia_com__gpu="10")), KIND_OF)
    share = {"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    for limits in ({"nvidia.com/gpu": "1", **share}, share):
        model = a_pod("p")
        model.spec.containers[0].resources = k8s.V1ResourceRequirements(limits=limits)
        request = request_of(pod(model), KIND_OF)
        assert request.devices == (DeviceRequest(DeviceKind.GPU, 1, models=frozenset({"nvidia.com/gpu"})),)
        assert Cluster.of((has,)).fits("n", request) is None
    model.spec.containers[0].resources = k8s.V1ResourceRequirements(limits={"nvidia.com/gpumem": "much"})
    with pytest.raises(SchedulerError, match=r"nvidia\.com/gpumem: 'much' is not a quantity"):
        request_of(pod(model), KIND_OF)


def test_settings_can_make_a_share_a_device() -> None:
    kind_of = kinds_of((DeviceResource(resource="nvidia.com/gpumem", kind=DeviceKind.XPU),))
    assert kind_of("nvidia.com/gpumem") is DeviceKind.XPU
    assert request_of(pod(a_pod("p", nvidia_com__gpumem="3")), kind_of).devices[0].count == 3


def test_containers_are_added_up() -> None:
    model = a_pod("p", cpu="1", memory="1Gi", nvidia_com__gpu="1")
    model.spec.containers.append(container("b", cpu="500m", memory="1Gi"))
    request = request_of(pod(model), KIND_OF)
    assert (request.cpu_milli, request.memory_bytes) == (1500, 2 * GIB)
    assert request.devices == (DeviceRequest(DeviceKind.GPU, 1, models=frozenset({"nvidia.com/gpu"})),)


def test_init_sidecars_and_overhead_count_as_in_kubernetes() -> None:
    """The first init container runs alone; the last one next to the sidecar started before it."""
    model = a_pod("p", cpu="1", memory="1Gi")
    model.spec.init_containers = [
        container("first", cpu="2500m"),
        container("side", "Always", cpu="1", memory="2Gi"),
        container("last", cpu="2", memory="512Mi"),
    ]
    model.spec.overhead = {"cpu": "250m", "memory": "64Mi"}
    request = request_of(pod(model), KIND_OF)
    assert request.cpu_milli == max(1000 + 1000, 2500, 1000 + 2000) + 250
    assert request.memory_bytes == 3 * GIB + (64 << 20)


def test_pod_level_resources_override_those_of_containers() -> None:
    model = a_pod("p", cpu="1", memory="1Gi", nvidia_com__gpu="1")
    model.spec.resources = k8s.V1ResourceRequirements(requests={"cpu": "4"})
    request = request_of(pod(model), KIND_OF)
    assert (request.cpu_milli, request.memory_bytes, len(request.devices)) == (4000, GIB, 1)


def test_a_limit_alone_is_a_request() -> None:
    model = a_pod("p")
    model.spec.containers[0].resources = k8s.V1ResourceRequirements(limits={"nvidia.com/gpu": "2", "cpu": "3"})
    request = request_of(pod(model), KIND_OF)
    assert (request.cpu_milli, request.devices[0].count) == (3000, 2)


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"cpu": "many"}, "node n: allocatable: 'many' is not a quantity"),
        ({"memory": "-1Gi"}, "node n: allocatable: '-1Gi' is negative"),
        ({"nvidia_com__gpu": "5000"}, "node n: 5000 devices; at most 4096 are supported"),
    ],
)
def test_a_node_that_cannot_be(resources: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        node_of(node(a_node("n", **resources)), KIND_OF)
    assert str(caught.value) == problem


def test_a_pod_that_cannot_be() -> None:
    with pytest.raises(SchedulerError, match="pod default/p: memory: 'much' is not a quantity"):
        request_of(pod(a_pod("p", memory="much")), KIND_OF)
