"""Real containers of every runtime: one suite for the whole protocol."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.base import (
    STDERR,
    STDOUT,
    ContainerOrder,
    ContainerPhase,
    Ended,
    Output,
    Runtime,
    Terminal,
)
from controller.workloads.nodes.runtimes.errors import ContainerError, ImageError, NoSuchContainerError, OrderError
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.runtimes.real_containers import (
    Run,
    container,
    logged,
    only,
    outcome,
    stderr_of,
    until_ended,
)

pytestmark = [pytest.mark.root, pytest.mark.containers]


@pytest.fixture
def podman_storage(shared_storage: PodmanStorage) -> PodmanStorage:
    """Return the storage shared by these tests."""
    return shared_storage


def test_a_container_from_its_creation_to_its_removal(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        image = await runtime.pull(podman_storage.image)
        assert image.digest == podman_storage.digest
        assert [each.digest for each in await runtime.images()] == [image.digest]
        order = ContainerOrder(
            name="millrace-n1-p1-c1",
            labels={"millrace.node": "n1", "millrace.epoch": "3"},
            image=image.digest,
            command=("/bin/sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done"),
        )
        made_id = await runtime.create(order)
        made = await only(runtime)
        assert (made.id, made.phase, made.exit_code) == (made_id, ContainerPhase.CREATED, None)
        ended = asyncio.ensure_future(anext(runtime.events()))
        await runtime.start_container(made_id)
        running = await only(runtime)
        assert running.phase is ContainerPhase.RUNNING
        assert running.pid is not None
        assert running.started_ns is not None
        assert (running.name, running.labels) == (order.name, order.labels)
        assert running.image_digest == image.digest
        assert ((await runtime.usage(made_id)).memory_bytes or 0) > 0
        async with aclosing(runtime.logs(made_id, follow=True)) as outputs:
            assert await anext(outputs) == Output(STDOUT, b"ready\n")
        await runtime.stop(made_id, 5)
        stopped = await only(runtime)
        assert (stopped.phase, stopped.exit_code, stopped.is_out_of_memory) == (ContainerPhase.EXITED, 7, False)
        assert await ended == Ended(made_id)
        await runtime.stop(made_id, 5)
        await runtime.kill(made_id)
        with pytest.raises(NoSuchContainerError):
            await runtime.usage(made_id)
        for _ in range(2):
            await runtime.remove(made_id)
        assert await runtime.list("n1") == ()

    run(work)


def test_of_other_nodes_nothing_is_listed(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        async with container(runtime, podman_storage, "sleep 60"):
            assert await runtime.list("n2") == ()

    run(work)


def test_logs(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        script = "for i in 1 2 3; do echo line $i; done; sleep 0.1; echo wrong >&2; sleep 0.2; printf end"
        async with container(runtime, podman_storage, script) as made:
            followed = [output async for output in runtime.logs(made, follow=True)]
            assert b"".join(each.data for each in followed if each.stream == STDOUT) == b"line 1\nline 2\nline 3\nend"
            assert b"".join(each.data for each in followed if each.stream == STDERR) == b"wrong\n"
            await until_ended(runtime)
            assert await logged(runtime, made) == b"line 1\nline 2\nline 3\nwrong\nend"
            assert await logged(runtime, made, tail=2) == b"wrong\nend"
            assert await logged(runtime, made, tail=0) == b""
            assert await logged(runtime, made, since_ns=1 << 62) == b""

    run(work)


def test_a_process_in_a_container(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        async with container(runtime, podman_storage, "sleep 60") as made:
            session = await runtime.exec(made, ("/bin/sh", "-c", "cat; echo bad >&2; exit 3"))
            await session.write(b"x" * 300_000)
            await session.close_input()
            assert await outcome(session) == (b"x" * 300_000, b"bad\n", 3)
            await session.close()

    run(work)


def test_a_terminal_in_a_container(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        async with container(runtime, podman_storage, "sleep 60") as made:
            script = (
                "stty size; until stty size | grep '40 120'; do sleep 0.05; done; read line; echo got $line; exit 4"
            )
            session = await runtime.exec(made, ("/bin/sh", "-c", script), terminal=Terminal(30, 100))
            outputs = session.output()
            seen = b""
            while b"30 100" not in seen:
                seen += (await anext(outputs)).data
            await session.resize(Terminal(40, 120))
            await session.write(b"hello\n")
            async for output in outputs:
                seen += output.data
            assert b"40 120" in seen
            assert b"got hello" in seen
            assert await session.exit_code() == 4
            await session.close()

    run(work)


def test_a_process_ends_with_its_session(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        async with container(runtime, podman_storage, "exec tail -f /dev/null") as made:
            session = await runtime.exec(made, ("/bin/sh", "-c", "echo on; exec sleep 1234"))
            assert await anext(session.output()) == Output(STDOUT, b"on\n")
            await session.close()
            looking = await runtime.exec(made, ("/bin/sh", "-c", "while ps | grep -q '[s]leep 12'; do sleep 0.1; done"))
            assert (await outcome(looking))[2] == 0
            await looking.close()

    run(work)


def test_a_command_that_is_not_there(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        image = (await runtime.pull(podman_storage.image)).digest
        order = ContainerOrder(name="c1", labels={"millrace.node": "n1"}, image=image, command=("/bin/nothing",))
        with pytest.raises(ContainerError, match=r"^[^\n]*/bin/nothing[^\n]*no such file or directory[^\n]*$"):
            await runtime.start_container(await runtime.create(order))
        for state in await runtime.list("n1"):
            await runtime.remove(state.id)

    run(work)


def test_out_of_memory_is_reported(
    run: Run, podman_storage: PodmanStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def work(runtime: Runtime) -> None:
        for script in ("exec tail /dev/zero", "tail /dev/zero; exit 137"):
            # Not before podman was asked for its control group, which is watched from then on.
            waits = f"while ! test -e /tmp/go; do sleep 0.02; done; {script}"
            async with container(runtime, podman_storage, waits, memory_bytes=16 << 20):
                Path(f"/proc/{(await only(runtime)).pid}/root/tmp/go").touch()
                ended = await until_ended(runtime)
                assert (ended.exit_code, ended.is_out_of_memory) == (137, True)
        async with container(runtime, podman_storage, "sleep 60", memory_bytes=16 << 20) as made:
            await runtime.kill(made)
            ended = await until_ended(runtime)
            assert (ended.exit_code, ended.is_out_of_memory) == (137, False)

    run(work)
    assert list(tmp_path.iterdir()) == []


def test_limits_hold(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        script = (
            "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us || cat memory.max cpu.max;"
            "(for i in 1 2 3 4 5 6 7 8 9; do sleep 30 & done); exec sleep 60"
        )
        limits = {"processes": 6, "memory_bytes": 32 << 20, "cpu_milli": 100}
        async with container(runtime, podman_storage, script, **limits) as made:
            written, seen = stderr_of(runtime, made), b""
            while b"can't fork" not in seen:
                seen += await anext(written)
            assert (await logged(runtime, made)).startswith(b"33554432\n10000")
            usage = await runtime.usage(made)
            assert 1 < (usage.processes or 0) <= 6
            assert 0 < (usage.memory_bytes or 0) <= 32 << 20

    run(work)


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("oci:HERE/at/all", "does not exist"),
        ("oci:HERE", r"does not exist \(there is no /[^\n]*/index.json\)"),
        ("oci-archive:HERE/nowhere.tar", "does not exist"),
        ("oci:/etc", "lies in none of the node's image_folders"),
        ("sha256:" + "0" * 64, "does not exist here"),
        ("a name", "not an image name"),
    ],
)
def test_an_image_that_does_not_exist(run: Run, podman_storage: PodmanStorage, image: str, problem: str) -> None:
    async def work(runtime: Runtime) -> None:
        with pytest.raises(ImageError, match=rf"^image [^\n]*{problem}[^\n]*$"):
            await runtime.pull(image.replace("HERE", str(podman_storage.folder)))

    run(work)


def test_impossible_limits_are_refused(run: Run, podman_storage: PodmanStorage) -> None:
    async def work(runtime: Runtime) -> None:
        image = (await runtime.pull(podman_storage.image)).digest
        with pytest.raises(OrderError, match="memory_bytes is 4096"):
            await runtime.create(ContainerOrder(name="c1", image=image, memory_bytes=4096))
        with pytest.raises(OrderError, match="cpu_milli is 0"):
            await runtime.create(ContainerOrder(name="c1", image=image, cpu_milli=0))

    run(work)
