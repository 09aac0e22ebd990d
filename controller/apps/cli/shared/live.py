"""Live views of a collector's snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from rich.console import Group, RenderableType
from rich.live import Live

from collectors.values import Snapshot
from controller.common.console import plain_or_terminal


async def show_live(
    looks: AsyncIterator[Snapshot],
    count: int | None,
    render: Callable[[Snapshot], RenderableType],
    *,
    patience_s: float,
) -> None:
    """Redraw each look in place on a terminal, else print one after the other.

    If none arrives for `patience_s`, print how long ago the last one was.
    """
    console, seen, silent_s = plain_or_terminal(), 0, 0.0
    shown: RenderableType = ""
    coming = asyncio.ensure_future(anext(looks))
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as screen:
        try:
            while seen != count:
                # Unlike wait_for, this leaves the pending look alone on a timeout.
                done, _ = await asyncio.wait((coming,), timeout=patience_s)
                if done:
                    shown, silent_s = render(coming.result()), 0.0
                    coming = asyncio.ensure_future(anext(looks))
                    seen += 1
                else:
                    silent_s += patience_s
                note = f"no update from the collector for {silent_s:.0f} s: figures are that old" if silent_s else ""
                if console.is_terminal:
                    screen.update(Group(note, shown) if note else shown, refresh=True)
                else:
                    console.print(note or shown)
        finally:
            coming.cancel()
