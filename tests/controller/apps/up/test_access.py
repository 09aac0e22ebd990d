"""A daemon's token: created once at a real API, readable by its user only, recreated if the API does not know it."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.apiserver import process
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.apps.up.access import ensure_token
from controller.common.errors import InvalidError


@asynccontextmanager
async def serving(folder: Path, name: str) -> AsyncIterator[str]:
    address = f"unix:{folder}/api.sock"
    settings = ApiSettings(storage=StoragePlace(sqlite=str(folder / name)), listen=(address,))
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(process.serve(settings, stop, lambda _: ready.set()))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield address
    finally:
        stop.set()
        await task


def test_a_token_is_made_once_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "token"

    async def use() -> None:
        address = f"unix:{tmp_path}/api.sock"
        making = asyncio.create_task(ensure_token(file, "scheduler", address))  # the API is not up yet
        async with serving(tmp_path, "first"):
            await making
            first = file.read_text(encoding="ascii")
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            await ensure_token(file, "scheduler", address)
            assert file.read_text(encoding="ascii") == first
        async with serving(tmp_path, "another"):
            await ensure_token(file, "scheduler", address)
            assert file.read_text(encoding="ascii") != first

    asyncio.run(use())


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x", encoding="ascii")
    file.chmod(0o644)
    with pytest.raises(InvalidError, match="is readable by others"):
        asyncio.run(ensure_token(file, "scheduler", f"unix:{tmp_path}/api.sock"))
