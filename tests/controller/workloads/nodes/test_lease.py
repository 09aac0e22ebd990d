"""The lease file and its guard process; without containers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.apiserver.agents.server_clock import boot_time_ns
from controller.apiserver.resources import Node
from controller.apiserver.resources.pod import Phase
from controller.workloads.nodes.guard import lease_file
from controller.workloads.nodes.guard.lease_file import LeaseFileError, boot_id, decode, encode
from controller.workloads.nodes.lease import LeaseKeeper
from controller.workloads.nodes.state_folder import NodeFolder
from dataplane.local.deadline import local_timeout
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime
from tests.controller.workloads.nodes.node_world import World, play
from tests.waiting import HANG_S, until, wait_until

S = 10**9
_GUARD = Path(lease_file.__file__).with_name("__main__.py")
_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 62), st.lists(_NAMES.map(lambda name: f"/{name}/x"), max_size=5))
def test_a_lease_is_read_as_it_was_written(end_ns: int, folders: list[str]) -> None:
    assert decode(encode(end_ns, "boot", tuple(folders))) == (end_ns, "boot", tuple(folders))


def test_partial_lease_is_invalid() -> None:
    whole = encode(17, "boot", ("/a", "/b"))
    torn = encode(18, "boot", ("/a", "/b"))
    for broken in (b"", whole[:-1], whole[:10] + torn[10:], whole.replace(b"/a", b"/c"), b"\0" * len(whole)):
        with pytest.raises(LeaseFileError):
            decode(broken)
    with pytest.raises(LeaseFileError, match="do not fit"):
        encode(17, "boot", ("/long" * 1000,) * 2)


def test_lease_without_an_end_is_invalid() -> None:
    body = b"millrace lease 1\nsoon\nboot\n"
    with pytest.raises(LeaseFileError, match=r"^a lease without an end$"):
        decode((f"{zlib.crc32(body):08x}\n".encode() + body).ljust(lease_file.SIZE, b"\n"))


@contextmanager
def group_with_a_process(tmp_path: Path, *parts: str) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Yield a folder that looks like a control group, and a process in it."""
    folder = tmp_path.joinpath("group", *parts)
    folder.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "100"])
    (folder / "cgroup.procs").write_text(f"{process.pid}\n")
    try:
        yield tmp_path / "group", process
    finally:
        process.kill()
        process.wait()


@contextmanager
def guard(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-I", "-S", str(_GUARD), str(tmp_path / "lease"), str(tmp_path / "guard.lock")]
    process = subprocess.Popen(words)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def guard_of(tmp_path: Path, folder: Path, left_s: float) -> Iterator[None]:
    write(tmp_path, folder, left_s)
    with guard(tmp_path):
        yield


def write(tmp_path: Path, folder: Path, left_s: float, boot: str | None = None) -> int:
    end_ns = boot_time_ns() + round(left_s * S)
    lease_file.write(str(tmp_path / "lease"), end_ns, boot or boot_id(), (str(folder),))
    return end_ns


def test_the_guard_kills_when_the_lease_is_over_and_not_before(tmp_path: Path) -> None:
    with group_with_a_process(tmp_path, "pod", "container") as (folder, process):
        end_ns = write(tmp_path, folder, 0.4)
        with guard(tmp_path):
            assert process.wait(HANG_S) == -signal.SIGKILL
            assert boot_time_ns() >= end_ns


def test_guard_spares_a_renewed_lease(tmp_path: Path) -> None:
    with group_with_a_process(tmp_path, "pod") as (folder, process), guard_of(tmp_path, folder, 0.3):
        for _ in range(4):
            time.sleep(0.15)
            write(tmp_path, folder, 0.3)
        assert process.poll() is None
        write(tmp_path, folder, 100)


def test_monitors_survive_to_report_the_end(tmp_path: Path) -> None:
    with (
        group_with_a_process(tmp_path, "pod", "conmon") as (folder, monitor),
        group_with_a_process(tmp_path, "pod", "container", "conmon") as (_, hidden),
        guard_of(tmp_path, folder, 0.0),
    ):
        assert hidden.wait(HANG_S) == -signal.SIGKILL  # no container makes itself a monitor
        assert monitor.poll() is None


def test_foreign_boot_kills_the_group_and_no_file_ends_the_guard(tmp_path: Path) -> None:
    with group_with_a_process(tmp_path) as (folder, process):
        write(tmp_path, folder, 100, boot="another")
        with guard(tmp_path) as running:
            assert process.wait(HANG_S) == -signal.SIGKILL
            (tmp_path / "lease").unlink()
            (folder / "cgroup.procs").write_text("")
            assert running.wait(HANG_S) == 0


def test_one_guard_is_enough(tmp_path: Path) -> None:
    write(tmp_path, tmp_path / "none", 100)
    with guard(tmp_path) as first:
        lock = tmp_path / "guard.lock"
        wait_until(lambda: lock.exists() and lock.read_text().strip() != "", "the guard takes no lock")
        with guard(tmp_path) as second:
            assert second.wait(HANG_S) == 1
        assert first.poll() is None


def test_a_guard_that_is_killed_is_started_again(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path, "h1")

    async def main() -> None:
        keeper = LeaseKeeper(folder, ())
        keeper.renew(boot_time_ns(), 100.0)
        watching = asyncio.create_task(keeper.watch_guard())
        first = await _guard_of(folder, None)
        os.kill(first, signal.SIGKILL)
        second = await _guard_of(folder, first)
        assert second != first
        keeper.end()
        async with local_timeout(30, "a test"):
            await watching  # the guard ends with its file, and is not restarted

    asyncio.run(main())


def test_rest_of_a_lease_passes_to_the_next_manager(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path, "h1")
    assert LeaseKeeper(folder, ()).is_over()
    first = LeaseKeeper(folder, ())
    first.renew(boot_time_ns(), 40.0)
    second = LeaseKeeper(folder, ())
    assert not second.is_over()
    assert second.lease.kill_ns == first.lease.kill_ns
    (tmp_path / "lease").write_bytes(b"x" * 100)
    assert LeaseKeeper(folder, ()).is_over()


@pytest.mark.root
def test_a_full_disk_keeps_no_lease_from_being_renewed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)

    async def act(world: World) -> None:
        runtime = MemoryRuntime()
        async with world.managing(runtime, world.settings(state=str(disk / "state"))):
            with suppress(OSError), (disk / "filler").open("wb") as file:
                while True:
                    file.write(b"x" * 4096)
                    file.flush()
            before, heartbeat = lease_file.read(str(disk / "state" / "lease"))[0], await world.heartbeat_ns("h1")
            await world.until(lambda: world.is_ready(after_ns=heartbeat))
            await world.bind("a")
            await world.in_phase("a", Phase.RUNNING)
            assert lease_file.read(str(disk / "state" / "lease"))[0] > before
            assert (await world.client.of(Node).get("h1")).status.ready

    try:
        play(tmp_path, act)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def _guard_of(folder: NodeFolder, other_than: int | None) -> int:
    text = ""

    def has_started() -> bool:
        nonlocal text
        text = folder.guard_lock.read_text().strip() if folder.guard_lock.exists() else ""
        return text != "" and int(text) != other_than and Path(f"/proc/{text}").exists()

    await until(has_started, "no guard starts")
    return int(text)
