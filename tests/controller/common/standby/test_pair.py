"""The skeleton of a daemon in a pair."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from controller.common.standby.lease import Lease
from controller.common.standby.pair import Member, serve_in_pair
from controller.common.standby.settings import StandbySettings


def test_standby_ends_with_the_thread_that_looks_at_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "step", _fail)
    settings = StandbySettings(holder="b", sqlite=str(tmp_path / "lease.sqlite"))
    member = Member("paths", "unix:paths.sock", logging.getLogger("test"))
    stopped = asyncio.Event()

    async def serve(_lease: Lease | None, ended: asyncio.Event) -> None:
        await ended.wait()
        stopped.set()

    with pytest.raises(RuntimeError, match="no more threads"):
        asyncio.run(serve_in_pair(settings, member, serve, asyncio.Event()))
    assert stopped.is_set()


def _fail(_lease: Lease) -> None:
    raise RuntimeError("no more threads")
