"""Options that users or images give a container's runtime in words that look harmless: they reach no runtime."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.hardware import DeviceShare
from controller.apiserver.resources.pod import Container, PodSpec, PodStatus
from controller.workloads.nodes.deciding.orders import Place, order_of
from controller.workloads.nodes.runtimes.base import ContainerOrder, Runtime
from controller.workloads.nodes.runtimes.errors import OrderError
from controller.workloads.nodes.runtimes.processes import child_environment
from controller.workloads.nodes.runtimes.settings import RuntimeKind
from dataplane.topology.values import DeviceKind
from tests.controller.workloads.nodes.conftest import PodmanStorage, storage_in
from tests.controller.workloads.nodes.runtimes.real_containers import container, logged, run_with, until_ended

ALL = {"NVIDIA_VISIBLE_DEVICES": "all", "ASCEND_VISIBLE_DEVICES": "0-7", "CUDA_VISIBLE_DEVICES": "0,1,2", "MINE": "1"}


@pytest.fixture
def podman_storage(tmp_path: Path) -> Iterator[PodmanStorage]:
    with storage_in(tmp_path) as storage:
        yield storage


def environment(*devices: int, is_stated: bool = False) -> dict[str, str]:
    """Return the environment of a pod that asks for all devices, and holds these."""
    made = Container(name="main", image="i", environment=ALL)
    status = PodStatus(devices=tuple(DeviceShare(number=number) for number in devices))
    files = {0: ("/dev/null",), 1: ("/dev/zero",)}
    node = Place("h1", "0123", devices=files, known=dict.fromkeys((0, 1), DeviceKind.GPU), is_stated=is_stated)
    pod = Pod(metadata=Metadata(name="a"), spec=PodSpec(containers=(made,)), status=status)
    return dict(order_of(node, pod, made, attempt=0, image="i").environment)


@pytest.mark.parametrize("is_stated", [True, False])
def test_a_pod_without_devices_gets_none(is_stated: bool) -> None:
    variables = environment(is_stated=is_stated)
    assert (variables["NVIDIA_VISIBLE_DEVICES"], variables["ASCEND_VISIBLE_DEVICES"]) == ("void", "void")
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["MINE"]) == ("", "1")


def test_a_pod_gets_the_devices_that_it_holds() -> None:
    variables = environment(1)
    assert (variables["NVIDIA_VISIBLE_DEVICES"], variables["ASCEND_VISIBLE_DEVICES"]) == ("1", "void")
    assert environment(1, is_stated=True)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_no_program_gets_what_is_between_us_and_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """runc hands NOTIFY_SOCKET to the container, and has its start wait for a word from there."""
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LANG"):
        monkeypatch.setenv(name, "x")
    variables = child_environment({"MORE": "y"})
    assert variables.keys() & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LANG", "MORE"} == {"LANG", "MORE"}


def annotate(layout: Path, annotations: dict[str, str]) -> None:
    """Give the image of a layout annotations."""
    index = json.loads((layout / "index.json").read_text())
    (described,) = index["manifests"]
    blobs = layout / "blobs" / "sha256"
    manifest = json.loads((blobs / described["digest"].removeprefix("sha256:")).read_text())
    content = json.dumps(manifest | {"annotations": annotations}).encode()
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    described |= {"digest": f"sha256:{digest}", "size": len(content)}
    (layout / "index.json").write_text(json.dumps(index))


@pytest.mark.root
@pytest.mark.containers
@pytest.mark.parametrize("kind", list(RuntimeKind))
def test_annotations_of_images_reach_no_runtime(
    kind: RuntimeKind, podman_storage: PodmanStorage, tmp_path: Path
) -> None:
    annotate(tmp_path / "image", {"org.opencontainers.image.title": "EVIL", "com.example.option": "EVIL"})

    async def work(runtime: Runtime) -> None:
        async with container(runtime, podman_storage, "echo ran") as made:
            await until_ended(runtime)
            assert await logged(runtime, made) == b"ran\n"
            configs = [path for path in podman_storage.folder.rglob("config.json") if made in str(path)]
            assert configs
            for config in configs:
                assert "EVIL" not in config.read_text()

    run_with(kind, podman_storage, work)


@pytest.mark.root
@pytest.mark.containers
def test_images_with_a_runtimes_options_are_refused(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        for name in ("org.criu.config", "run.oci.hooks.stdin", "org.systemd.property.User"):
            annotate(tmp_path / "image", {name: "/etc/shadow"})
            image = (await runtime.pull(podman_storage.image)).digest
            with pytest.raises(OrderError, match=f"its image has annotation {name}"):
                await runtime.create(ContainerOrder(name="c1", image=image, command=("true",)))

    run_with(RuntimeKind.PODMAN, podman_storage, work)
