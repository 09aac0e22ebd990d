"""`millrace telemetry top` with a hanging collector: output is marked as old."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import pytest
from rich.console import Console

from collectors.values import Snapshot
from controller.apps.cli.shared import live
from tests.waiting import finish_within


class Screen(io.StringIO):
    """Printed text, with an event set once silence is reported."""

    def __init__(self) -> None:
        super().__init__()
        self.silence = asyncio.Event()

    def write(self, text: str) -> int:
        if "no update from the collector for" in text:
            self.silence.set()
        return super().write(text)


def test_silence_is_reported_and_later_data_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> str:
        screen = Screen()
        monkeypatch.setattr(live, "plain_or_terminal", lambda: Console(file=screen, width=200))

        async def looks() -> AsyncIterator[Snapshot]:
            yield Snapshot(1, {}, {}, {})
            await screen.silence.wait()
            yield Snapshot(2, {}, {}, {})

        await live.show_live(looks(), 2, lambda seen: f"look {seen.taken_ns}", patience_s=0.01)
        return screen.getvalue()

    first, *silent, last = asyncio.run(finish_within(scene(), 20)).splitlines()
    assert (first, last) == ("look 1", "look 2")
    assert silent
    assert all(line.startswith("no update from the collector for ") for line in silent)
