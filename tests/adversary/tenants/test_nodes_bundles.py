"""Bundles whose owner replaces checked files by links while a container is created from them."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.base import Mount
from controller.workloads.nodes.runtimes.bundle import Bundle, hold_mounts, read_bundle
from controller.workloads.nodes.runtimes.errors import ContainerError, OrderError
from controller.workloads.nodes.runtimes.runc.copying import Room, copy_tree
from controller.workloads.nodes.runtimes.runc.overlay import mount_binds, mount_root, unmount_all
from controller.workloads.nodes.runtimes.security import HostFolders

pytestmark = pytest.mark.root

DEADLINE_S = 60
TRIES = 12
ROOM = Room(1 << 30, 1000)
_AT_FDCWD, _EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder that no container is to see."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "shadow").write_text("root:...")
    return tmp_path / "secret"


@pytest.fixture
def bundle(tmp_path: Path, secret: Path) -> Path:
    """A bundle, with a link to the secret next to its root folder."""
    folder = tmp_path / "bundles" / "b1"
    (folder / "rootfs" / "etc").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"process": {"args": ["sh"]}, "root": {"path": "rootfs"}}))
    (folder / "trap").symlink_to(secret)
    return folder


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "container").mkdir()
    yield tmp_path / "container"
    unmount_all(tmp_path / "container")


def exchange(path: Path, other: Path) -> None:
    """Swap two names, so that at no moment either is gone (renameat2(2))."""
    assert _libc.renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0


@contextmanager
def swapping(path: Path, other: Path) -> Iterator[None]:
    """Swap two names as often as can be, until the block ends."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(path, other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def seen(folder: Path) -> set[str]:
    return {path.name for path in (folder / "rootfs").iterdir()}


def test_a_root_that_was_swapped_after_its_check(bundle: Path, container: Path) -> None:
    with ExitStack() as stack:
        spec = asyncio.run(read_bundle(bundle, HostFolders(bundles=(bundle.parent,)), stack, DEADLINE_S))
        exchange(bundle / "rootfs", bundle / "trap")
        mount_root(spec.root, container, ROOM)
    assert seen(container) == {"etc"}


def test_a_bundle_that_was_swapped_after_its_check(bundle: Path, container: Path, secret: Path) -> None:
    (secret / "rootfs").mkdir()
    (bundle.parent / "trap").symlink_to(secret)
    with ExitStack() as stack:
        spec = asyncio.run(read_bundle(bundle, HostFolders(bundles=(bundle.parent,)), stack, DEADLINE_S))
        exchange(bundle, bundle.parent / "trap")
        mount_root(spec.root, container, ROOM)
    assert seen(container) == {"etc"}


def test_a_mount_that_was_swapped_after_its_check(tmp_path: Path, container: Path, secret: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "data").mkdir(parents=True)
    (shared / "data" / "mine").touch()
    (shared / "trap").symlink_to(secret)
    with ExitStack() as stack:
        wanted = (Mount(shared / "data", Path("/data")),)
        binds = asyncio.run(hold_mounts(wanted, HostFolders(mounts=(shared,)), stack, DEADLINE_S))
        exchange(shared / "data", shared / "trap")
        (made,) = mount_binds(binds, container)
    assert {path.name for path in made.source.iterdir()} == {"mine"}
    unmount_all(container)
    assert list(made.source.iterdir()) == []


def test_a_root_that_is_swapped_all_the_time(bundle: Path, tmp_path: Path) -> None:
    outcomes = set[str]()
    with swapping(bundle / "rootfs", bundle / "trap"):
        for number in range(TRIES):
            folder = tmp_path / f"container-{number}"
            folder.mkdir()
            try:
                with ExitStack() as stack:
                    spec = asyncio.run(read_bundle(bundle, HostFolders(bundles=(bundle.parent,)), stack, DEADLINE_S))
                    mount_root(spec.root, folder, ROOM)
                outcomes |= seen(folder)
            except OrderError as error:
                assert "has a link in its path" in str(error)  # noqa: PT017 - either outcome is right
                outcomes.add("refused")
            finally:
                unmount_all(folder)
    assert "shadow" not in outcomes


def test_a_copy_follows_no_links(bundle: Path, secret: Path, tmp_path: Path) -> None:
    root = bundle / "rootfs"
    (root / "etc" / "hosts").write_text("here")
    (root / "etc" / "hosts").chmod(0o4755)
    (root / "way-out").symlink_to(secret)
    os.mkfifo(root / "pipe")
    (root / "etc" / "trap").symlink_to(secret)
    target = tmp_path / "copy"
    target.mkdir()
    descriptor = os.open(root, os.O_PATH)
    with swapping(root / "etc" / "hosts", root / "etc" / "trap"):
        for number in range(TRIES):
            (target / str(number)).mkdir()
            try:
                copy_tree(descriptor, target / str(number), Room(1 << 20, 100))
            except OSError:
                continue  # it was a link by the time that it was opened
    os.close(descriptor)
    for copy in target.iterdir():
        assert not (copy / "pipe").exists()
        files = [path for path in copy.rglob("*") if path.is_file() and not path.is_symlink()]
        assert "root:..." not in {path.read_text() for path in files}
    (target / "whole").mkdir()
    descriptor = os.open(root, os.O_PATH)
    copy_tree(descriptor, target / "whole", Room(1 << 20, 100))
    os.close(descriptor)
    assert {path.name for path in (target / "whole").rglob("*")} == {"etc", "hosts", "trap", "way-out"}


@pytest.mark.parametrize("name", ["loop", "loop/deeper", "a" * 300, "rootfs/../../../secret", "/"])
def test_a_root_that_cannot_be_opened_is_one_line(bundle: Path, name: str) -> None:
    (bundle / "loop").symlink_to("loop")
    config = {"process": {"args": ["sh"]}, "root": {"path": name}}
    (bundle / "config.json").write_text(json.dumps(config))
    with pytest.raises(OrderError, match="not a folder inside the bundle") as refused, ExitStack() as stack:
        asyncio.run(read_bundle(bundle, HostFolders(bundles=(bundle.parent,)), stack, DEADLINE_S))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("special", ["pipe", "link", "kmsg"])
def test_a_config_that_is_no_file_is_refused(bundle: Path, special: str) -> None:
    path = bundle / "config.json"
    path.unlink()
    if special == "pipe":
        os.mkfifo(path)
    elif special == "link":
        path.symlink_to("/proc/kmsg")
    else:
        os.mknod(path, 0o020600, os.makedev(1, 11))
    with pytest.raises(ContainerError, match=r"config\.json: cannot be read: it (is|has)"), ExitStack() as stack:
        asyncio.run(read_bundle(bundle, HostFolders(bundles=(bundle.parent,)), stack, DEADLINE_S))


def test_a_folder_with_mounts_is_not_removed(tmp_path: Path, container: Path) -> None:
    """Bind mounts in a container's folder belong to the machine: they are unmounted first, in folders of any name."""
    precious = tmp_path / "precious folder"
    precious.mkdir()
    (precious / "data").touch()
    with ExitStack() as stack:
        wanted = (Mount(precious, Path("/data")),)
        binds = asyncio.run(hold_mounts(wanted, HostFolders(mounts=(precious,)), stack, DEADLINE_S))
        (made,) = mount_binds(binds, container)
    assert (made.source / "data").exists()
    unmount_all(container)
    assert not (made.source / "data").exists()
    assert (precious / "data").exists()


@pytest.mark.parametrize("change", [lambda path: os.chown(path, 1000, 0), lambda path: path.chmod(0o777)])
@pytest.mark.parametrize("part", ["", "rootfs"])
def test_what_others_may_change_is_copied(
    bundle: Path, container: Path, part: str, change: Callable[[Path], None]
) -> None:
    """They could swap folders under runc's hands, while it mounts /proc, /dev and the like there."""

    def read(stack: ExitStack) -> Bundle:
        return asyncio.run(read_bundle(bundle, HostFolders(bundles=(bundle.parent,)), stack, DEADLINE_S))

    with ExitStack() as stack:
        assert not read(stack).is_others
        change(bundle / part)
        spec = read(stack)
        assert spec.is_others
        mount_root(spec.root, container, Room(1 << 20, 100), is_copied=spec.is_others)
    (bundle / "rootfs" / "etc" / "later").touch()
    assert seen(container) == {"etc"}
    assert list((container / "rootfs" / "etc").iterdir()) == []


@pytest.mark.parametrize("room", [Room(999, 100), Room(10_000, 1)])
def test_a_copy_is_bounded(bundle: Path, container: Path, room: Room) -> None:
    (bundle / "rootfs" / "etc" / "large").write_bytes(bytes(1000))
    descriptor = os.open(bundle / "rootfs", os.O_PATH)
    with pytest.raises(ContainerError, match="is larger than an image may be"):
        mount_root(descriptor, container, room, is_copied=True)
    os.close(descriptor)
