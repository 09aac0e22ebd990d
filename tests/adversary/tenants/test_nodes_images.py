"""Image files that are endless, belong to another user, or fill the disk: each is refused in one line."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.apiserver.resources import Pod
from controller.apiserver.resources.pod import Phase, Restart
from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.runtimes.errors import ImageError
from controller.workloads.nodes.runtimes.images.limits import ImageLimits, Taken, held_to, taken_by
from controller.workloads.nodes.runtimes.images.reference import parse_reference
from controller.workloads.nodes.runtimes.images.staging import ImageFiles, work_folder
from controller.workloads.nodes.runtimes.settings import RuntimeKind, RuntimeSettings
from controller.workloads.nodes.settings import OnStop
from tests.controller.workloads.nodes.busybox_image import skip_without_containers
from tests.controller.workloads.nodes.conftest import PodmanStorage, storage_in
from tests.controller.workloads.nodes.node_world import World, play
from tests.controller.workloads.nodes.runtimes.real_containers import run_with
from tests.waiting import until

LIMITS = ImageLimits(most_bytes=32 << 20, most_files=1000)
DEADLINE_S = 60
TIB = 1 << 40


def member(name: str, nbytes: int = 0, **more: Any) -> bytes:
    """Return a member of a tar, its content zeros; `more` are fields of its header."""
    header = tarfile.TarInfo(name)
    header.size = nbytes
    for field, value in more.items():
        setattr(header, field, value)
    return header.tobuf(tarfile.PAX_FORMAT)


def zeros(nbytes: int) -> bytes:
    return member("zeros", nbytes) + bytes(nbytes) + bytes(1024)


def sparse() -> bytes:
    """Return a tar with a file of 10 TiB in which there is nothing (GNU.sparse 1.0)."""
    told = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "s",
        "GNU.sparse.realsize": str(10 * TIB),
    }
    return member("s", 512, pax_headers=told) + b"0\n".ljust(512, b"\0") + bytes(1024)


def many_files() -> bytes:
    return b"".join(member(f"f{number}") for number in range(LIMITS.most_files + 1)) + bytes(1024)


def claimed() -> bytes:
    return member("liar", 8 * TIB) + bytes(4096)


def write_layout(folder: Path, layer: bytes) -> Path:
    """Write a layout with one image of one layer."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    manifest = put(json.dumps({"config": put(b'{"config": {}}'), "layers": [put(layer)]}).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    return folder


def write_archive(file: Path, layer: bytes) -> Path:
    with tarfile.open(file, "w") as archive:
        for name, content in (("manifest.json", b"[]"), ("layer.tar", layer)):
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return file


def refusal(image: str, *folders: Path, work: Path) -> str:
    """Return why an image file is refused, after all that is done before something is made of it."""
    files, reference = ImageFiles(folders, LIMITS, DEADLINE_S), parse_reference(image)

    async def main() -> None:
        async with work_folder(work) as folder:
            if image.startswith("oci:"):
                layout, manifest = await files.layout(reference, folder)
                await files.complete(reference, layout, manifest)
            else:
                await files.measure(reference, (await files.archive(reference, folder),), is_archive=True)

    with pytest.raises(ImageError) as refused:
        asyncio.run(main())
    assert list(work.iterdir()) == []
    assert str(refused.value).startswith("image oci")
    assert str(refused.value).isprintable()
    return str(refused.value)


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "zeros": (lambda: gzip.compress(zeros(64 << 20)), "takes more than 33554432 bytes"),
    "trailing": (lambda: gzip.compress(bytes(64 << 20)), "takes more than 33554432 bytes"),
    "sparse": (sparse, "takes more than 33554432 bytes"),
    "many-files": (lambda: gzip.compress(many_files()), "has more than 1000 files"),
    "claimed": (claimed, "takes more than 33554432 bytes"),
    "damaged": (lambda: gzip.compress(zeros(1000))[:-20], "damaged layer|not a tar"),
    "noise": (lambda: gzip.compress(os.urandom(5000)), "not a tar"),
    "zstandard": (lambda: b"\x28\xb5\x2f\xfd" + bytes(100), "Zstandard"),
}


@pytest.mark.parametrize("bomb", list(BOMBS))
@pytest.mark.parametrize("kind", ["oci", "oci-archive"])
def test_an_image_that_would_fill_the_disk(tmp_path: Path, kind: str, bomb: str) -> None:
    layer, problem = BOMBS[bomb]
    write = write_layout if kind == "oci" else write_archive
    image = write(tmp_path / "image", layer())
    assert re.search(problem, refusal(f"{kind}:{image}", tmp_path, work=tmp_path / "work"))


def _holed(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * TIB)


SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is not a regular file"),
    "socket-like folder": (lambda path: path.mkdir(), "is not a regular file"),
    "link": (lambda path: path.symlink_to("/etc/shadow"), "has a link in its path"),
    "loop": (lambda path: path.symlink_to(path), "has a link in its path"),
    "hole": (_holed, "has 10995116277760 bytes, this node allows at most 33554432"),
    "nothing": (lambda path: None, "does not exist"),
}


@pytest.mark.parametrize("special", list(SPECIAL))
def test_an_archive_that_is_no_plain_file(tmp_path: Path, special: str) -> None:
    make, problem = SPECIAL[special]
    make(tmp_path / "archive.tar")
    assert problem in refusal(f"oci-archive:{tmp_path}/archive.tar", tmp_path, work=tmp_path / "work")


def test_image_files_lie_where_the_node_allows_them(tmp_path: Path) -> None:
    allowed, work = tmp_path / "allowed", tmp_path / "work"
    allowed.mkdir()
    write_archive(tmp_path / "other.tar", zeros(10))
    for path in ("/etc/shadow", tmp_path / "other.tar", allowed / ".." / "other.tar"):
        assert "lies in none of the node's image_folders" in refusal(f"oci-archive:{path}", allowed, work=work)
    assert "image_folders" in refusal("oci:/proc", allowed, work=work)
    assert "too long" in refusal(f"oci-archive:{allowed}/{'a' * 300}", allowed, work=work)


def test_words_of_the_kernel_are_never_read(tmp_path: Path) -> None:
    """Even where the settings allow it: reading /proc/kmsg blocks forever, and consumes lines meant for others."""
    for path in ("/proc/kmsg", f"/proc/{os.getpid()}/mem", "/sys/kernel/uevent_seqnum"):
        if Path(path).exists():
            folders = (Path("/proc"), Path("/sys"))
            assert "file system generated by the kernel" in refusal(f"oci-archive:{path}", *folders, work=tmp_path)


def test_a_layouts_parts_are_no_links(tmp_path: Path) -> None:
    layout, secret = write_layout(tmp_path / "image", zeros(10)), tmp_path / "secret"
    secret.write_text("root:...")
    (layer,) = [path for path in (layout / "blobs" / "sha256").iterdir() if path.stat().st_size > 1000]
    layer.unlink()
    layer.symlink_to(secret)
    assert "has a link in its path" in refusal(f"oci:{layout}", layout, work=tmp_path / "work")
    (layout / "index.json").rename(tmp_path / "index.json")
    (layout / "index.json").symlink_to(tmp_path / "index.json")
    assert "index.json cannot be read: it has a link" in refusal(f"oci:{layout}", layout, work=tmp_path / "work")


def test_what_programs_write_is_held_to_the_limits(tmp_path: Path) -> None:
    """Programs outside our control pull registries' images: they are killed once they exceed a limit."""
    ended = list[str]()

    async def bring() -> bytes:
        try:
            while True:
                (tmp_path / str(len(list(tmp_path.iterdir())))).write_bytes(os.urandom(1 << 16))
                await asyncio.sleep(0)
        finally:
            ended.append("bringing")

    def bringing() -> Coroutine[Any, Any, bytes]:
        return bring()

    for limits, problem in ((ImageLimits(1 << 20, 10**6), "bytes"), (ImageLimits(1 << 40, 40), "files")):
        with pytest.raises(ImageError, match=f"image x: [a-z ]* {limits.most_bytes if problem == 'bytes' else 40}"):
            asyncio.run(held_to(lambda most=limits: most, lambda: taken_by(tmp_path), "x", bringing()))  # type: ignore[misc]
    assert ended == ["bringing"] * 2
    assert taken_by(tmp_path / "nothing") == Taken(0, 0)


@pytest.fixture
def podman_storage(tmp_path: Path) -> Iterator[PodmanStorage]:
    with storage_in(tmp_path) as storage:
        yield storage


@pytest.mark.root
@pytest.mark.containers
@pytest.mark.parametrize("kind", list(RuntimeKind))
def test_no_image_ends_or_freezes_a_manager(tmp_path: Path, podman_storage: PodmanStorage, kind: RuntimeKind) -> None:
    _holed(tmp_path / "hole.tar")
    write_layout(tmp_path / "bomb", gzip.compress(zeros(64 << 20)))
    bad = {
        "kmsg": "oci-archive:/proc/kmsg",
        "long": f"oci-archive:{tmp_path}/{'a' * 300}",
        "hole": f"oci-archive:{tmp_path}/hole.tar",
        "docker-hole": f"docker-archive:{tmp_path}/hole.tar",
        "bomb": f"oci:{tmp_path}/bomb",
    }
    folders = (*podman_storage.image_folders, Path("/proc"))
    runtime = RuntimeSettings(
        kind=kind, environment=podman_storage.environment, image_folders=folders, image_bytes=LIMITS.most_bytes
    )

    async def act(world: World) -> None:
        async with world.managing(None, world.settings(runtime=runtime, on_stop=OnStop.STOP)) as manager:
            for name, image in bad.items():
                await world.bind(name, image=image, restart=Restart.NEVER)
            for name, image in bad.items():
                (reason,) = (await world.in_phase(name, Phase.FAILED)).status.reasons
                assert reason.startswith(f"main: image {image}"[:200])
            await world.bind("good", image=podman_storage.image, stop_grace_s=0)
            await world.in_phase("good", Phase.RUNNING)
            assert not manager.done()
            await world.client.of(Pod).delete("good")
            await world.until_gone("good")
            await until(lambda: not list((tmp_path / "state-h1" / "containers").glob("*")))

    play(tmp_path, act)


@pytest.mark.root
@pytest.mark.containers
@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
def test_an_archive_takes_no_name_of_a_registrys_image(
    tmp_path: Path, podman_storage: PodmanStorage, transport: str
) -> None:
    """A later pull of the registry's image would return the archive's."""
    name = "docker.io/library/python:3"
    archive = tmp_path / "archive.tar"
    if transport == "oci-archive":
        index = json.loads((tmp_path / "image" / "index.json").read_text())
        index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": name}
        (tmp_path / "image" / "index.json").write_text(json.dumps(index))
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(tmp_path / "image", arcname=".")
    else:
        skip_without_containers("skopeo")
        words = ["skopeo", "copy", "--quiet", podman_storage.image, f"docker-archive:{archive}:{name}"]
        subprocess.run(words, check=True, capture_output=True)

    async def work(runtime: Runtime) -> None:
        image = await runtime.pull(f"{transport}:{archive}")
        (found,) = await runtime.images()
        assert (await runtime.pull(image.digest)).digest == image.digest
        assert all(each.startswith("localhost/millrace:archive-") for each in found.names)
        assert await runtime.pull(f"{transport}:{archive}") == image

    run_with(RuntimeKind.PODMAN, podman_storage, work)
