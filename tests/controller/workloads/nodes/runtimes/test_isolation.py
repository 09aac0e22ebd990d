"""Isolation of containers: capabilities, devices, host folders, network."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
from pathlib import Path

import pytest

from collectors.devices.root import Root
from controller.workloads.nodes.deciding.shares import Mps
from controller.workloads.nodes.mps import finder
from controller.workloads.nodes.runtimes.base import ContainerOrder, Mount, Runtime
from controller.workloads.nodes.runtimes.errors import OrderError
from controller.workloads.nodes.runtimes.settings import RuntimeKind, Seccomp
from controller.workloads.nodes.settings import MpsSection
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.runtimes.real_containers import Run, container, logged, run_with, until_ended
from tests.network_namespace import network_namespace
from tests.recorded import write_tree

pytestmark = [pytest.mark.root, pytest.mark.containers]


@pytest.fixture
def podman_storage(shared_storage: PodmanStorage) -> PodmanStorage:
    """Return the storage shared by these tests."""
    return shared_storage


def test_root_in_a_container_may_little(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        script = (
            "grep -E '^(CapEff|CapBnd|CapPrm|CapInh|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status;"
            "mknod /tmp/disk b 8 0 || echo refused; mount -t tmpfs none /tmp || echo refused;"
            "echo 1 > /sys/kernel/mm/ksm/run || echo refused; echo 1 > /proc/sys/kernel/printk || echo refused;"
            "hostname other || echo refused"
        )
        async with container(runtime, podman_storage, script) as made:
            await until_ended(runtime)
            text = (await logged(runtime, made)).decode()
            status = dict(line.split(":\t") for line in text.splitlines() if ":\t" in line)
            assert status == {
                "CapEff": "00000000800405fb",
                "CapBnd": "00000000800405fb",
                "CapPrm": "00000000800405fb",
                "CapInh": "0" * 16,
                "CapAmb": "0" * 16,
                "NoNewPrivs": "1",
                "Seccomp": "2",
            }
            assert text.count("refused\n") == 5

    run(work)


def test_a_filter_of_system_calls_is_left_out_by_a_setting_alone(podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        async with container(runtime, podman_storage, "grep ^Seccomp: /proc/self/status") as made:
            await until_ended(runtime)
            assert await logged(runtime, made) == b"Seccomp:\t0\n"

    run_with(RuntimeKind.RUNC, podman_storage, work, seccomp=Seccomp.NONE)


def test_devices_are_those_that_were_given(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        script = (
            "stat -c '%t:%T %F' /dev/net/tun; exec 3<>/dev/net/tun && echo opened;"
            "ls /dev | tr '\\n' ' '; ls /dev/loop0 /dev/vda /dev/kmsg 2>/dev/null; echo"
        )
        async with container(runtime, podman_storage, script, devices=("/dev/net/tun",)) as made:
            await until_ended(runtime)
            device, opened, names = (await logged(runtime, made)).decode().splitlines()[:3]
            assert (device, opened) == ("a:c8 character special file", "opened")
            assert set(names.split()) <= {
                *("console", "core", "fd", "full", "mqueue", "net", "null", "ptmx", "pts", "random", "shm"),
                *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
            }

    run(work)


def test_a_device_that_was_not_given_is_closed_even_with_a_file(run: Run, podman_storage: PodmanStorage) -> None:
    """The control group decides by device number: here /dev/fuse, whose file could be in the image."""

    async def work(runtime: Runtime) -> None:
        script = "sleep 60"
        async with container(runtime, podman_storage, script) as made:
            state = (await runtime.list("n1"))[0]
            path = Path(f"/proc/{state.pid}/root/tmp/fuse")
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(10, 229))
            session = await runtime.exec(made, ("/bin/sh", "-c", "exec 3<>/tmp/fuse && echo opened"))
            written = b"".join([output.data async for output in session.output()])
            await session.close()
            assert b"not permitted" in written or b"Permission denied" in written
            assert b"opened" not in written

    run(work)


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ("/dev/nothing", "no such file"),
        ("/dev/kmsg", "the machine's memory, or its log"),
        ("/dev/loop-control/../../etc/passwd", "neither a path below /dev"),
        ("/etc/passwd", "neither a path below /dev"),
    ],
)
def test_files_that_are_no_devices_are_refused(
    run: Run, podman_storage: PodmanStorage, device: str, problem: str
) -> None:
    async def work(runtime: Runtime) -> None:
        image = (await runtime.pull(podman_storage.image)).digest
        with pytest.raises(OrderError, match=problem):
            await runtime.create(ContainerOrder(name="c1", image=image, command=("true",), devices=(device,)))
        assert await runtime.list("n1") == ()

    run(work)


def test_the_network_namespace_that_is_named_is_joined(run: Run, podman_storage: PodmanStorage) -> None:
    with network_namespace(("near0", "far0")) as name:
        subprocess.run(["ip", "-n", name, "address", "add", "10.1.2.3/24", "dev", "near0"], check=True)

        async def work(runtime: Runtime) -> None:
            namespace = Path(f"/run/netns/{name}")
            async with container(runtime, podman_storage, "ip -o address", network_namespace=namespace) as made:
                await until_ended(runtime)
                assert b"inet 10.1.2.3/24" in await logged(runtime, made)

        run(work)


def test_without_a_namespace_there_is_loopback_alone(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        async with container(runtime, podman_storage, "ip -o link | cut -d: -f2") as made:
            await until_ended(runtime)
            assert (await logged(runtime, made)).split() == [b"lo"]

    run(work)


def test_folders_of_the_machine_that_are_allowed(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed / "in", other):
        folder.mkdir(parents=True)
    (allowed / "in" / "greeting").write_text("hello")
    (allowed / "out").symlink_to(other)

    async def work(runtime: Runtime) -> None:
        mounts = (Mount(allowed / "in", Path("/work/in")),)
        script = "cat /work/in/greeting; touch /work/in/new || echo refused"
        async with container(runtime, podman_storage, script, mounts=mounts) as made:
            mounted = Path("/proc/self/mountinfo").read_text().splitlines()
            assert not [line for line in mounted if "/mounts/" in line and str(tmp_path) in line]
            await until_ended(runtime)
            text = await logged(runtime, made)
            assert (b"hello" in text, b"Read-only file system" in text, b"refused\n" in text) == (True, True, True)
        image = (await runtime.pull(podman_storage.image)).digest
        refused = "none of the node's mount_folders|has a link in its path"
        for source in (other, allowed / "out", Path("/"), allowed / ".." / "other"):
            order = ContainerOrder(name="c1", image=image, mounts=(Mount(source, Path("/work/in")),))
            with pytest.raises(OrderError, match=refused):
                await runtime.create(order)
        assert (allowed / "in" / "greeting").read_text() == "hello"

    run_with(RuntimeKind.RUNC, podman_storage, work, mount_folders=(allowed,))


def test_podman_mounts_nothing_of_the_machine(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        image = (await runtime.pull(podman_storage.image)).digest
        order = ContainerOrder(name="c1", image=image, mounts=(Mount(tmp_path, Path("/work/in")),))
        with pytest.raises(OrderError, match="only the runc runtime mounts folders of the machine"):
            await runtime.create(order)

    run_with(RuntimeKind.PODMAN, podman_storage, work, mount_folders=(tmp_path,))


def test_names_of_the_container_device_interface(run: Run, kind: RuntimeKind, podman_storage: PodmanStorage) -> None:
    if kind is RuntimeKind.PODMAN:
        pytest.skip("the test below, with a file of ours")

    async def work(runtime: Runtime) -> None:
        image = (await runtime.pull(podman_storage.image)).digest
        with pytest.raises(OrderError, match="only podman takes CDI names"):
            await runtime.create(ContainerOrder(name="c1", image=image, devices=("vendor.com/gpu=0",)))

    run(work)


def test_podman_gives_a_container_the_pipes_of_mps(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    """By our CDI file; no device and no daemon are needed for that."""
    pipes, shared, number = tmp_path / "pipes", tmp_path / "shm", secrets.token_hex(4)
    write_tree(tmp_path, {"pipes/control": "pipe", "shm/cuda.shm": "shared"})
    relative = str(pipes).lstrip("/")
    machine = {f"{relative}/nvidia-cuda-mps-control.pid": "77", "proc/77/comm": "nvidia-cuda-mps"}
    settings = MpsSection(pipes=str(pipes), shared_memory=str(shared))
    root = Root(write_tree(tmp_path / "root", machine))
    mps = finder(settings, RuntimeKind.PODMAN, f"test-{number}", root)()
    assert isinstance(mps, Mps)

    async def work(runtime: Runtime) -> None:
        script = f"cat {pipes}/control /dev/shm/cuda.shm"
        async with container(runtime, podman_storage, script, devices=(mps.device,)) as made:
            await until_ended(runtime)
            assert await logged(runtime, made) == b"pipeshared"

    try:
        run_with(RuntimeKind.PODMAN, podman_storage, work)
    finally:
        Path(f"/var/run/cdi/millrace-mps-test-{number}.json").unlink()
