"""Shares of devices: enforced through CUDA's multi-process service where its daemon runs, else only admitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.devices.root import Root
from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.hardware import DeviceLimit, DeviceShare
from controller.apiserver.resources.pod import Container, PodSpec, PodStatus
from controller.workloads.nodes.deciding.orders import Place, order_of
from controller.workloads.nodes.deciding.shares import Mps, ShareLimits, limits_in, limits_of
from controller.workloads.nodes.deciding.statuses import status_of
from controller.workloads.nodes.deciding.values import SHARES_LABEL, Actual, Wanted
from controller.workloads.nodes.mps import finder
from controller.workloads.nodes.runtimes.base import ContainerOrder, ContainerPhase, ContainerState
from controller.workloads.nodes.runtimes.settings import RuntimeKind
from controller.workloads.nodes.settings import MpsSection
from dataplane.topology.values import DeviceKind
from tests.recorded import write_tree

GIB = 1 << 30
MPS = Mps("/pipes", "millrace.local/mps=h1")
FILES = {0: ("/dev/nvidia0",), 1: ("nvidia.com/gpu=1",), 2: ("/dev/dri",)}


def share(number: int, thousandths: int = 500, memory_bytes: int = 0) -> DeviceShare:
    return DeviceShare(number=number, thousandths=thousandths, memory_bytes=memory_bytes)


def reasons(*held: DeviceShare, mps: Mps | str = MPS, is_stated: bool = False) -> list[str]:
    return [str(limit) for limit in limits_of(held, FILES, mps, is_stated=is_stated).limits]


def test_a_share_is_enforced_by_variables_and_cdi() -> None:
    made = limits_of([share(1, 125, 6 * GIB)], FILES, MPS, is_stated=False)
    assert made.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": "/pipes",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=6144M",  # as the program counts: it sees no other device
    }
    assert made.devices == ("millrace.local/mps=h1",)
    assert [str(limit) for limit in made.limits] == ["enforced by MPS"]
    both = limits_of([share(0, memory_bytes=GIB), share(1, memory_bytes=2 * GIB)], FILES, MPS, is_stated=False)
    assert both.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1024M,1=2048M"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in limits_of([share(0)], FILES, MPS, is_stated=False).environment


def test_a_share_that_nothing_enforces_says_why() -> None:
    assert reasons(share(2)) == ["admitted, not enforced: only NVIDIA's devices can be divided here"]
    assert reasons(share(0), mps="no daemon") == ["admitted, not enforced: no daemon"]
    assert reasons(share(0), is_stated=True) == ["admitted, not enforced: the device is a topology's"]
    differ = "admitted, not enforced: MPS has one limit for all devices of a program, and this pod's shares differ"
    assert reasons(share(0, 500), share(1, 250)) == [differ, differ]
    assert reasons(share(0, 500), share(1, 1000)) == [differ]  # the other device is whole
    part = limits_of([share(1)], FILES, MPS, is_stated=False, instances={1})
    assert part.environment == {}
    assert "an instance of a divided one (MIG), which the service's daemon does not serve" in str(part.limits[0])
    assert limits_of([share(0, 1000)], FILES, MPS, is_stated=False) == ShareLimits()


def order(mps: Mps | str) -> tuple[Pod, ContainerOrder]:
    made = Container(name="main", image="i", environment={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"})
    status = PodStatus(devices=(share(0, 250),), node="h1", epoch=1)
    pod = Pod(metadata=Metadata(name="a", uid="u"), spec=PodSpec(containers=(made,)), status=status)
    place = Place("h1", "0123", devices=FILES, known=dict.fromkeys(FILES, DeviceKind.GPU), mps=mps)
    return pod, order_of(place, pod, made, attempt=0, image="i")


@pytest.mark.parametrize("mps", [MPS, "no daemon"])
def test_containers_and_status_tell_of_enforcement(mps: Mps | str) -> None:
    pod, ordered = order(mps)
    is_enforced = isinstance(mps, Mps)
    assert ("millrace.local/mps=h1" in ordered.devices) is is_enforced
    assert ("CUDA_MPS_PIPE_DIRECTORY" in ordered.environment) is is_enforced
    assert ordered.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"  # not as its user has it
    state = ContainerState(id="1", name="a", labels=ordered.labels, phase=ContainerPhase.RUNNING)
    status = status_of(pod, Wanted.of(pod, {}), [Actual.of(state)], now_ns=1)
    assert status.device_limits == (DeviceLimit(number=0, reason=None if is_enforced else "no daemon"),)


def test_labels_of_other_versions_tell_nothing() -> None:
    _, ordered = order(MPS)
    assert limits_in(ordered.labels[SHARES_LABEL]) == (DeviceLimit(number=0),)
    assert limits_in("") == limits_in("[{}]") == limits_in("{") == ()


def test_the_service_is_found_while_its_daemon_runs(tmp_path: Path) -> None:
    cdi = tmp_path / "cdi"
    settings = MpsSection(pipes="/run/mps", shared_memory="/run/shm", cdi=str(cdi))
    find = finder(settings, RuntimeKind.PODMAN, "h1-0123", Root(tmp_path))
    absent = "no MPS control daemon runs with pipes in /run/mps"
    assert find() == absent
    write_tree(tmp_path, {"run/mps/nvidia-cuda-mps-control.pid": "77\n", "proc/77/comm": "bash\n"})
    assert find() == absent  # the number has gone to another process
    assert not cdi.exists()
    write_tree(tmp_path, {"proc/77/comm": "nvidia-cuda-mps\n"})
    assert find() == Mps("/run/mps", "millrace.local/mps=h1-0123")
    (file,) = cdi.iterdir()
    specification = json.loads(file.read_text())
    assert (specification["kind"], specification["devices"][0]["name"]) == ("millrace.local/mps", "h1-0123")
    mounts = specification["devices"][0]["containerEdits"]["mounts"]
    assert [(mount["hostPath"], mount["containerPath"]) for mount in mounts] == [
        ("/run/mps", "/run/mps"),
        ("/run/shm", "/dev/shm"),
    ]
    assert find() == Mps("/run/mps", "millrace.local/mps=h1-0123")  # again, with the file in place


def test_the_reason_for_no_service_is_a_line(tmp_path: Path) -> None:
    write_tree(tmp_path, {"run/mps/nvidia-cuda-mps-control.pid": "77", "proc/77/comm": "nvidia-cuda-mps"})
    settings = MpsSection(pipes="/run/mps", cdi=str(tmp_path / "run/mps/nvidia-cuda-mps-control.pid"))
    root = Root(tmp_path)
    assert finder(None, RuntimeKind.PODMAN, "h1", root)() == "`mps` of the node's settings is off"
    assert finder(settings, RuntimeKind.RUNC, "h1", root)() == "the runc runtime takes no CDI names"
    why = finder(settings, RuntimeKind.PODMAN, "h1", root)()
    assert isinstance(why, str)
    assert why.endswith("millrace-mps-h1.json: File exists")
