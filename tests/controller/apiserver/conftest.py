"""A server for the tests of the API, and etcd's fixture."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dataplane.local.deadline import local_timeout
from tests.controller.apiserver.api_server import WAIT_S, Play, Served, serving, settings_in


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Run a function on a server over SQLite."""

    def run(act: Callable[[Served], Awaitable[None]], **limits: float) -> None:
        async def main() -> None:
            async with (
                local_timeout(WAIT_S, "a test"),
                serving(settings_in(tmp_path, None, **limits), tmp_path) as served,
            ):
                await act(served)

        asyncio.run(main())

    return run
