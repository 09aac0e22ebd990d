"""The start of a node manager on a machine with a slow runtime."""

from __future__ import annotations

import asyncio
import logging

import pytest

from controller.workloads.nodes.process import _start
from controller.workloads.nodes.runtimes.errors import RuntimeAwayError, RuntimeTimeoutError
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime


class SlowRuntime(MemoryRuntime):
    """A runtime that raises these errors before it answers."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    async def start(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def late() -> RuntimeTimeoutError:
    return RuntimeTimeoutError("podman", "version", 30)


def test_start_asks_a_silent_runtime_again(caplog: pytest.LogCaptureFixture) -> None:
    runtime = SlowRuntime(late(), late())
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(_start(runtime)) == asyncio.run(runtime.version())
    silent = "podman: version: no answer within 30 s; asking again, at most"
    assert [record.getMessage() for record in caplog.records] == [f"{silent} {left} more times" for left in (2, 1)]


def test_start_gives_up_after_three_attempts() -> None:
    with pytest.raises(RuntimeTimeoutError, match=r"no answer within 30 s$"):
        asyncio.run(_start(SlowRuntime(late(), late(), late())))


def test_start_does_not_wait_for_a_missing_runtime() -> None:
    with pytest.raises(RuntimeAwayError, match="no podman"):
        asyncio.run(_start(SlowRuntime(RuntimeAwayError("no podman"))))
