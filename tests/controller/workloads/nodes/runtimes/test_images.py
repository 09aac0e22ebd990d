"""Images from layouts and archives, with verified digests (registries: tests/soak/containers.py)."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.runtimes.errors import ImageError
from tests.controller.workloads.nodes.busybox_image import skip_without_containers, write_layout
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.runtimes.real_containers import Run, container, logged, until_ended

pytestmark = [pytest.mark.root, pytest.mark.containers]


def copy(*words: str) -> None:
    skip_without_containers("skopeo", "umoci")
    done = subprocess.run(["skopeo", "copy", "--quiet", *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
def test_archives(run: Run, podman_storage: PodmanStorage, tmp_path: Path, transport: str) -> None:
    if transport == "oci-archive":
        with tarfile.open(tmp_path / "image.tar", "w") as archive:
            archive.add(tmp_path / "image", arcname=".")
    else:
        copy(podman_storage.image, f"docker-archive:{tmp_path / 'image.tar'}:localhost/name:1")

    async def work(runtime: Runtime) -> None:
        image = await runtime.pull(f"{transport}:{tmp_path / 'image.tar'}")
        if transport == "oci-archive":
            assert image.digest == podman_storage.digest
        assert await runtime.pull(image.digest) == image
        assert [each.digest for each in await runtime.images()] == [image.digest]
        async with container(runtime, podman_storage, "echo ran", image=image.digest) as made:
            await until_ended(runtime)
            assert await logged(runtime, made) == b"ran\n"

    run(work)


def test_image_states_its_command(run: Run, podman_storage: PodmanStorage, tmp_path: Path) -> None:
    write_layout(tmp_path / "other", command=("/bin/sh", "-c", "echo $COLOUR $SIZE"), environment={"COLOUR": "red"})

    async def work(runtime: Runtime) -> None:
        other = (await runtime.pull(f"oci:{tmp_path / 'other'}")).digest
        async with container(runtime, podman_storage, "", image=other, command=(), environment={"SIZE": "big"}) as made:
            await until_ended(runtime)
            assert await logged(runtime, made) == b"red big\n"

    run(work)


def test_two_images_of_one_tag_stay_two(run: Run, podman_storage: PodmanStorage, tmp_path: Path) -> None:
    other = write_layout(tmp_path / "other", files={"etc/which": b"other"})

    async def work(runtime: Runtime) -> None:
        for _ in range(2):
            await runtime.pull(podman_storage.image)
            await runtime.pull(f"oci:{tmp_path / 'other'}:latest")
        assert {image.digest for image in await runtime.images()} == {podman_storage.digest, other}

    run(work)


def test_a_layer_that_was_changed_is_refused(run: Run, podman_storage: PodmanStorage) -> None:
    layer = max(
        (podman_storage.folder.parent / "image" / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size
    )
    layer.write_bytes(layer.read_bytes().replace(b"BusyBox", b"bUSYbOX"))

    async def work(runtime: Runtime) -> None:
        with pytest.raises(ImageError, match=r"^image [^\n]*(digest|sha256)[^\n]*$"):
            await runtime.pull(podman_storage.image)
        assert await runtime.images() == ()

    run(work)


def test_a_layout_without_a_layer_is_refused(run: Run, podman_storage: PodmanStorage) -> None:
    blobs = podman_storage.folder.parent / "image" / "blobs" / "sha256"
    max(blobs.iterdir(), key=lambda path: path.stat().st_size).unlink()

    async def work(runtime: Runtime) -> None:
        with pytest.raises(ImageError, match="blob sha256:"):
            await runtime.pull(podman_storage.image)
        assert await runtime.images() == ()

    run(work)


def test_a_digest_is_checked(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        with pytest.raises(ImageError, match="has digest"):
            await runtime.pull(f"{podman_storage.image}@sha256:{'0' * 64}")
        assert await runtime.images() == ()
        image = await runtime.pull(f"{podman_storage.image}@{podman_storage.digest}")
        assert image.digest == podman_storage.digest

    run(work)
