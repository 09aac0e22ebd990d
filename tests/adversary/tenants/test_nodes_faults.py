"""Pods made to end or to freeze their node's manager: each is its own failure, and the others run on."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest

from controller.apiserver.resources.pod import Phase, Restart
from controller.workloads.nodes.runtimes.base import ContainerOrder, Image
from controller.workloads.nodes.runtimes.errors import RuntimeTimeoutError
from controller.workloads.nodes.runtimes.processes import in_thread
from controller.workloads.nodes.serving.attempts import MOST_DEATHS, Attempts
from controller.workloads.nodes.watchdog import feed_watchdog, interval_s
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime
from tests.controller.workloads.nodes.node_world import World, play
from tests.waiting import until

UNFORESEEN = (
    OSError(36, "File name too long", "/" + "a" * 300),
    RecursionError("maximum recursion depth exceeded\nin comparison"),
    MemoryError(),
)


class BreakingRuntime(MemoryRuntime):
    """Raises unexpected errors for images and pods of that name."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: dict[str, BaseException] = {}
        self.creations: dict[str, BaseException] = {}
        self.waits = asyncio.Event()

    async def pull(self, image: str) -> Image:
        if image in self.pulls:
            raise self.pulls[image]
        if image == "slow":
            await self.waits.wait()
        return await super().pull(image)

    async def create(self, order: ContainerOrder) -> str:
        if (error := self.creations.get(order.labels["millrace.pod"])) is not None:
            raise error
        return await super().create(order)


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)
def test_an_unforeseen_error_is_one_pods_failure(tmp_path: Path, error: Exception) -> None:
    async def act(world: World) -> None:
        runtime = BreakingRuntime()
        runtime.pulls["bad"] = runtime.creations["made-badly"] = error
        async with world.managing(runtime) as manager:
            await world.bind("good")
            await world.in_phase("good", Phase.RUNNING)
            await world.bind("bad", image="bad", restart=Restart.NEVER)
            await world.bind("made-badly", restart=Restart.NEVER)
            for name in ("bad", "made-badly"):
                (reason,) = (await world.in_phase(name, Phase.FAILED)).status.reasons
                assert type(error).__name__ in reason
                assert reason.isprintable()
            assert (await world.pod("good")).status.phase is Phase.RUNNING
            assert not manager.done()

    play(tmp_path, act)


def _state(world: World) -> Path:
    return Path(world.settings().state)


async def _killed_while_starting(world: World, pods: int) -> None:
    """Start this many pods, then end the manager as by kill -9: its files stay unchanged."""
    async with world.managing(runtime := BreakingRuntime()):
        files = _state(world) / "attempts"
        await world.until(lambda: _holds(files.is_dir() and len(list(files.iterdir())) >= pods))
        left = {file.name: file.read_text() for file in files.iterdir()}
        assert not runtime.containers
    for name, count in left.items():  # this manager has ended in an orderly way, and cleared them
        (files / name).write_text(count)


async def _holds(value: bool) -> bool:
    return value


def test_a_pod_that_keeps_killing_managers_is_held_back(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        async with world.managing(BreakingRuntime()):
            await world.bind("killer", image="slow")
        for _ in range(MOST_DEATHS):
            await _killed_while_starting(world, 1)
        async with world.managing(BreakingRuntime()):
            (reason,) = (await world.in_phase("killer", Phase.FAILED)).status.reasons
            assert reason == f"held back: its start has ended the node's manager {MOST_DEATHS} times"
            await world.until(lambda: _holds(not list((_state(world) / "attempts").iterdir())))

    play(tmp_path, act)


def test_deaths_count_against_one_suspect_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        attempts, began = Attempts(tmp_path / "attempts"), list[str]()
        for uid in ("a", "b"):
            async with attempts.counted(uid):
                count = (tmp_path / "attempts" / uid).read_text()
            (tmp_path / "attempts" / uid).write_text(count)  # as a manager leaves it that was killed
        assert [attempts.deaths(uid) for uid in ("a", "b", "c")] == [1, 1, 0]

        async def start(uid: str) -> None:
            async with attempts.counted(uid):
                began.append(uid)
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(start(uid)) for uid in ("a", "b", "c")]
        await until(lambda: len(began) >= 2)
        assert began == ["a", "c"]
        assert {file.name: file.read_text() for file in (tmp_path / "attempts").iterdir()} == {
            "a": "2",
            "b": "1",
            "c": "1",
        }
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [attempts.deaths(uid) for uid in ("a", "b", "c")] == [0, 1, 0]
        attempts.keep({"c"})
        assert attempts.deaths("b") == 0

    asyncio.run(main())


def test_a_name_cannot_leave_the_folder_of_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with Attempts(tmp_path / "attempts").counted("../lease"):
            assert [file.name for file in (tmp_path / "attempts").iterdir()] == ["..%2Flease"]

    asyncio.run(main())


def test_the_watchdog_is_fed_by_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "30000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

        async def main() -> None:
            feeding = asyncio.create_task(feed_watchdog())
            for _ in range(2):
                assert await asyncio.to_thread(manager.recv, 100) == b"WATCHDOG=1"
            feeding.cancel()

        asyncio.run(main())


def test_who_feeds_a_watchdog_and_how_often() -> None:
    assert interval_s({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 7) == 10
    assert interval_s({"WATCHDOG_USEC": "30000000"}, 7) == 10
    for other in ({}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "8"}):
        assert interval_s(other, 7) is None


def test_a_disk_that_never_answers_is_given_up() -> None:
    """As one of the network does whose server has gone: the pod fails, and others that wait for it go on."""
    answers = threading.Event()

    async def main() -> None:
        with pytest.raises(RuntimeTimeoutError, match=r"^runc: open /far: no answer within 0.05 s$"):
            await in_thread(answers.wait, "runc", "open /far", 0.05)
        answers.set()

    asyncio.run(main())
