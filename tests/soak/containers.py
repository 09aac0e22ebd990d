"""Container tests too slow for every change: a real registry, logs of 10 MiB, a runc that hangs anywhere.

python -m pytest tests/soak/containers.py
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.runtimes.errors import ImageError
from controller.workloads.nodes.runtimes.settings import RuntimeKind
from tests.controller.workloads.nodes.busybox_image import skip_without_containers, write_layout
from tests.controller.workloads.nodes.conftest import PodmanStorage, storage_in
from tests.controller.workloads.nodes.runtimes.hanging_runc import hang
from tests.controller.workloads.nodes.runtimes.real_containers import (
    DEADLINE_S,
    container,
    logged,
    run_with,
    started,
    until_ended,
)
from tests.free_ports import free_ports
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.containers, pytest.mark.slow]


@pytest.fixture(params=list(RuntimeKind))
def kind(request: pytest.FixtureRequest) -> RuntimeKind:
    """Return the runtime under test."""
    return RuntimeKind(request.param)


@pytest.fixture
def podman_storage(tmp_path: Path) -> Iterator[PodmanStorage]:
    """A storage of the test's own."""
    with storage_in(tmp_path) as storage:
        yield storage


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry of the test's own on loopback; its address."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("needs docker-registry: apt install --no-install-recommends docker-registry")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": address},
    }
    (tmp_path / "registry.yml").write_text(json.dumps(settings))
    process = subprocess.Popen([program, "serve", str(tmp_path / "registry.yml")], stderr=subprocess.DEVNULL)
    try:

        def answers() -> bool:
            with socket.socket() as trial:
                return trial.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0

        wait_until(lambda: answers() or process.poll() is not None, "the registry does not answer")
        yield address
    finally:
        process.kill()
        process.wait()


def test_a_registry(kind: RuntimeKind, podman_storage: PodmanStorage, registry: str, tmp_path: Path) -> None:
    (tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    podman_storage.environment["CONTAINERS_REGISTRIES_CONF"] = str(tmp_path / "registries.conf")
    how = ("--preserve-digests", "--dest-tls-verify=false")
    skip_without_containers("skopeo", "umoci")
    words = ("skopeo", "copy", "--quiet", *how, podman_storage.image, f"docker://{registry}/busy/box:1")
    subprocess.run(words, check=True, capture_output=True)

    async def work(runtime: Runtime) -> None:
        with pytest.raises(ImageError, match=rf"^image {registry}/busy/none:1: [^\n]*$"):
            await runtime.pull(f"{registry}/busy/none:1")
        image = await runtime.pull(f"{registry}/busy/box:1")
        assert image.digest == podman_storage.digest
        assert await runtime.pull(f"{registry}/busy/box@{image.digest}") == image
        with pytest.raises(ImageError, match=r"^image [^\n]*$"):
            await runtime.pull(f"{registry}/busy/box@sha256:{'0' * 64}")
        async with container(runtime, podman_storage, "echo ran", image=f"{registry}/busy/box:1") as made:
            await until_ended(runtime)
            assert await logged(runtime, made) == b"ran\n"

    run_with(kind, podman_storage, work)


def test_a_registrys_image_is_held_to_the_limits(
    kind: RuntimeKind, podman_storage: PodmanStorage, registry: str, tmp_path: Path
) -> None:
    """100 kB on their way, 96 MiB unpacked."""
    (tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    podman_storage.environment["CONTAINERS_REGISTRIES_CONF"] = str(tmp_path / "registries.conf")
    write_layout(tmp_path / "bomb", files={"zeros": bytes(96 << 20)})
    words = ("skopeo", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{tmp_path}/bomb:latest")
    subprocess.run((*words, f"docker://{registry}/busy/bomb:1"), check=True, capture_output=True)

    async def work(runtime: Runtime) -> None:
        with pytest.raises(ImageError, match=rf"^image {registry}/busy/bomb:1: takes [^\n]*$"):
            await runtime.pull(f"{registry}/busy/bomb:1")
        assert await runtime.images() == ()

    run_with(kind, podman_storage, work, image_bytes=32 << 20)


def test_a_registry_that_nobody_runs(kind: RuntimeKind, podman_storage: PodmanStorage) -> None:
    """Podman tries several times."""

    async def work(runtime: Runtime) -> None:
        with pytest.raises(ImageError, match=r"^image [^\n]*127.0.0.1:1[^\n]*$"):
            await runtime.pull("127.0.0.1:1/none:1")

    run_with(kind, podman_storage, work)


@pytest.mark.parametrize("word", ["create", "start", "list", "exec"])
def test_a_runc_that_never_ends(podman_storage: PodmanStorage, word: str) -> None:
    hang(podman_storage, word)


def test_a_log_is_bounded_and_followed_over_its_bound(kind: RuntimeKind, podman_storage: PodmanStorage) -> None:
    """conmon begins a new file at 10 MiB; followers miss nothing, latecomers get the rest."""

    async def main() -> None:
        async with started(kind, podman_storage) as runtime:
            line = "0123456789" * 4
            script = f"i=0; while test $i -lt 9; do yes {line} | head -n 20000; i=$((i+1)); sleep 0.1; done; echo end"
            async with container(runtime, podman_storage, script) as made:
                async with aclosing(runtime.logs(made, follow=True)) as outputs:
                    followed = sum([output.data.count(b"\n") async for output in outputs])
                assert followed == 180_001
                kept = await logged(runtime, made)
                assert kept.endswith(b"\nend\n")
                assert len(kept) < 10 << 20
                assert await logged(runtime, made, tail=1) == b"end\n"

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))
