"""Pods that request nothing or too much, and files that they leave on disk: each node limits them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.hardware import Request
from controller.apiserver.resources.pod import Container, Phase, PodSpec, Restart
from controller.workloads.nodes.deciding.limits import PodLimits
from controller.workloads.nodes.deciding.orders import Place, order_of
from controller.workloads.nodes.runtimes.base import ContainerOrder, Image, Runtime
from controller.workloads.nodes.runtimes.errors import ContainerError, OrderError
from controller.workloads.nodes.runtimes.settings import RuntimeKind
from controller.workloads.nodes.serving.images import ImageCollector, ImageTerms, doomed
from controller.workloads.nodes.settings import LimitsSection
from tests.controller.workloads.nodes.conftest import PodmanStorage, storage_in
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime
from tests.controller.workloads.nodes.node_world import World, play
from tests.controller.workloads.nodes.runtimes.real_containers import container, logged, run_with, until_ended
from tests.waiting import until

S = 10**9
GIB = 1 << 30


@pytest.fixture
def podman_storage(tmp_path: Path) -> Iterator[PodmanStorage]:
    with storage_in(tmp_path) as storage:
        yield storage


def order(limits: PodLimits, memory_bytes: int = 0) -> ContainerOrder:
    made = Container(name="main", image="i")
    spec = PodSpec(containers=(made,), request=Request(memory_bytes=memory_bytes))
    node = Place("h1", "0123", limits=limits)
    return order_of(node, Pod(metadata=Metadata(name="a"), spec=spec), made, attempt=0, image="i")


def test_a_pod_that_asks_for_nothing_is_limited() -> None:
    limits = LimitsSection().of(64 * GIB)
    made = order(limits)
    assert (made.memory_bytes, made.processes, made.disk_bytes) == (2 * GIB, 4096, 10 * GIB)
    assert order(LimitsSection().of(GIB)).memory_bytes == GIB
    assert order(LimitsSection().of(0)).memory_bytes == 2 * GIB


def test_a_pod_that_asks_for_too_much_is_refused() -> None:
    limits = LimitsSection(most_memory_bytes=3 * GIB).of(64 * GIB)
    assert order(limits, 3 * GIB).memory_bytes == 3 * GIB
    with pytest.raises(
        OrderError, match=r"^pod a: memory: it requests 3221225473 bytes, this node allows at most 3221225472"
    ):
        order(limits, 3 * GIB + 1)
    with pytest.raises(OrderError, match="at most"):
        order(LimitsSection().of(GIB), 2 * GIB)


def test_a_pod_that_fills_the_disk_has_failed(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        runtime = MemoryRuntime()
        async with world.managing(runtime, world.settings(limits=LimitsSection(disk_bytes=1000))):
            for name in ("small", "large"):
                await world.bind(name, restart=Restart.ALWAYS)
                await world.in_phase(name, Phase.RUNNING)
            runtime.written_bytes |= {"small": 1000, "large": 1001}
            found = await world.in_phase("large", Phase.FAILED)
            assert found.status.reasons == ("has written 1001 bytes to its disk, this node allows at most 1000",)
            assert (await world.pod("small")).status.phase is Phase.RUNNING

    play(tmp_path, act)


def test_unused_images_go_by_age_and_by_bytes() -> None:
    images = {name: Image(name, (), 10) for name in "abcd"}
    used = {"a": 0, "b": 1000 * S, "c": 2000 * S, "d": 0}
    old, large = ImageTerms(1500 * S, 10**9), ImageTerms(10**9 * S, 20)
    assert doomed(images, {"a", "b", "c"}, used, 2100 * S, old) == ["a"]
    assert doomed(images, {"a", "b", "c"}, used, 2100 * S, large) == ["a"]
    assert doomed(images, {"a", "b", "c"}, used, 2100 * S, replace(large, kept_bytes=0)) == ["a", "b"]  # c is fresh


class Images(MemoryRuntime):
    """A runtime that has images, and removes none that is in `held`."""

    def __init__(self) -> None:
        super().__init__()
        self.there = {"sha256:other": Image("sha256:other", (), 10)}
        self.held = set[str]()

    async def images(self) -> tuple[Image, ...]:
        return tuple(self.there.values())

    async def remove_image(self, digest: str) -> None:
        if digest in self.held:
            raise ContainerError(f"image {digest}: a container uses it")
        del self.there[digest]


def test_only_what_was_brought_here_is_removed(tmp_path: Path) -> None:
    async def main() -> None:
        now, runtime = [0], Images()
        terms, file = ImageTerms(1000 * S, 10**9), tmp_path / "brought.json"
        collector = ImageCollector(runtime, file, terms, lambda: now[0])
        await collector.collect(())
        for digest in ("sha256:a", "sha256:b", "sha256:c"):
            runtime.there[digest] = Image(digest, (), 10)
            collector.note_pulled(runtime.there[digest])
        collector.note_pulled(runtime.there["sha256:other"])
        runtime.held = {"sha256:c"}
        now[0] = 1001 * S
        await collector.collect({"sha256:b"})
        assert runtime.there.keys() == {"sha256:other", "sha256:b", "sha256:c"}
        second = ImageCollector(runtime, file, terms, lambda: now[0])
        await second.collect(())
        assert runtime.there.keys() == {"sha256:other", "sha256:b", "sha256:c"}
        now[0], runtime.held = 2002 * S, set()
        await second.collect(())
        assert runtime.there.keys() == {"sha256:other"}
        await second.collect(())
        assert file.read_text() == "[]"

    asyncio.run(main())


@pytest.mark.root
@pytest.mark.containers
@pytest.mark.parametrize("kind", list(RuntimeKind))
def test_disks_and_images_of_real_runtimes(kind: RuntimeKind, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        write = "dd if=/dev/zero bs=1k"
        script = f"{write} of=/tmp/a count=600; {write} of=/tmp/b count=2000; echo written; sleep 60"
        async with container(runtime, podman_storage, script, disk_bytes=1 << 20) as made:

            async def has_written() -> bool:
                return b"written" in await logged(runtime, made)

            await until(has_written)
            assert 1_500_000 < await runtime.written(made) < 2_000_000
            (image,) = await runtime.images()
            with pytest.raises(ContainerError):
                await runtime.remove_image(image.digest)
            await runtime.kill(made)
            await until_ended(runtime)
        await runtime.remove_image(image.digest)
        await runtime.remove_image(image.digest)
        assert await runtime.images() == ()

    run_with(kind, podman_storage, work)
