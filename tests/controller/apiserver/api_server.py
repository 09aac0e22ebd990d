"""A running server in the test's event loop, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.process import serve
from controller.apiserver.settings import ApiLimits, ApiSettings, AuditSettings, StoragePlace
from controller.apiserver.tokens import TokenRequest
from dataplane.rpc.access import Right, Role

WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: its UNIX socket and its network address."""

    folder: Path
    socket: str
    url: str
    client: ApiClient
    """Client on the socket, as its administrator."""
    again: asyncio.Event
    """Event that SIGHUP sets in a process."""
    stop: asyncio.Event
    """Event that SIGTERM sets."""

    async def client_of(
        self,
        role: Role,
        subject: str | None = None,
        lasts_s: float | None = None,
        *,
        name: str | None = None,
        rights: tuple[Right, ...] = (),
        projects: tuple[str, ...] = (),
    ) -> ApiClient:
        who = name or subject or role.value
        request = TokenRequest(name=who, role=role, subject=subject, lasts_s=lasts_s, rights=rights, projects=projects)
        made = await self.client.create_token(request)
        return ApiClient(Place(self.url, made.token), tries=1)


def settings_in(folder: Path, storage: StoragePlace | None = None, **limits: float) -> ApiSettings:
    return ApiSettings(
        storage=storage or StoragePlace(sqlite=str(folder / "storage")),
        listen=(f"unix:{folder}/api.sock", "127.0.0.1:0"),
        audit=AuditSettings(file=str(folder / "audit")),
        limits=ApiLimits(**limits),  # type: ignore[arg-type]
    )


@asynccontextmanager
async def serving(settings: ApiSettings, folder: Path) -> AsyncIterator[Served]:
    stop, again, lines = asyncio.Event(), asyncio.Event(), asyncio.Queue[str]()
    task = asyncio.create_task(serve(settings, stop, lines.put_nowait, again=again))
    ready = asyncio.create_task(lines.get())
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        ready.cancel()
        await task
    socket, url = ready.result().removeprefix("API at ").split(", ")
    try:
        async with ApiClient(Place(socket), tries=1) as client:
            yield Served(folder, socket, url, client, again, stop)
    finally:
        stop.set()
        await task


class Play(Protocol):
    """Runs a function on a server with limits."""

    def __call__(self, act: Callable[[Served], Awaitable[None]], **limits: float) -> None: ...
