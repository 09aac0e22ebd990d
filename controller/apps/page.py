"""The operators' page alone: of a recorded history, or of a run in this process. No other daemon runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from collectors.history.files import TOPOLOGY_FILE
from collectors.history.schema import TABLES
from controller.apiserver.client import ApiClient, Place
from controller.apiserver.process import serve
from controller.apiserver.settings import ApiSettings, StoragePlace, ViewSettings
from controller.common.errors import ApiError
from dataplane.running import stop_on_signals

if TYPE_CHECKING:
    from controller.apiserver.view.following import Follow

_HISTORY: Final = "history"


def recorded_view(folder: Path, topology: str | None = None) -> ViewSettings:
    """Return settings that show a history, or that of a folder which has one; raise a one-line ApiError.

    Without `topology` it is the one that the collector wrote beside the rows.
    """
    if not folder.is_dir():
        raise ApiError(f"{folder}: no such folder")
    found = next((path for path in (folder, folder / _HISTORY) if any((path / name).is_dir() for name in TABLES)), None)
    if found is None:
        raise ApiError(f"{folder}: neither a collector's history, nor is one in its folder {_HISTORY}")
    own = found / TOPOLOGY_FILE
    if topology is None and not own.is_file():
        raise ApiError(f"{found}: says nothing of its topology: name it with --topology")
    return ViewSettings(topology=topology or str(own), network_state=None, history=str(found))


@asynccontextmanager
async def page_of(view: ViewSettings, port: int, follow: Follow | None = None) -> AsyncIterator[str]:
    """Serve the page on loopback while the block runs; yield an address that opens it once, within a minute.

    Raise MillraceError in one line.
    """
    with TemporaryDirectory(prefix="millrace-page-") as folder:
        socket, stop, ready = f"unix:{folder}/api.sock", asyncio.Event(), asyncio.Event()
        settings = ApiSettings(
            storage=StoragePlace(sqlite=f"{folder}/api.sqlite"), listen=(socket, f"127.0.0.1:{port}"), view=view
        )
        serving = asyncio.create_task(serve(settings, stop, lambda _: ready.set(), follow=follow))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            async with ApiClient(Place(socket)) as client:
                made = await client.new_code()
            yield f"{made.urls[0]}/#{made.code}"
        finally:
            waiting.cancel()
            stop.set()
            await asyncio.wait((serving,))


async def show_recorded(view: ViewSettings, port: int, say: Callable[[str], None], stop: asyncio.Event) -> None:
    """Serve a recorded history until `stop` is set; raise MillraceError."""
    async with page_of(view, port) as address:
        say(f"open {address} within a minute; Ctrl-C ends it")
        await stop.wait()


def run_recorded(folder: Path, topology: str | None, port: int, say: Callable[[str], None]) -> None:
    """Serve a recorded history until a signal; raise MillraceError."""

    async def main() -> None:
        stop = stop_on_signals()
        await show_recorded(recorded_view(folder, topology), port, say, stop)

    asyncio.run(main())
