"""Shared parts of the switch state commands: the address, a session, and suggestions for misspelt names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from controller.common.errors import SessionError

if TYPE_CHECKING:
    from controller.network.p4runtime.browsing import SwitchBrowser
    from dataplane.rpc.access.settings import TlsSettings

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="The switch's P4Runtime address: unix:PATH, HOST:PORT.")
]
DeviceId = Annotated[
    int | None, typer.Option(min=0, help="P4Runtime device id; default: the one that the switch tells, else 1.")
]
Tls = Annotated[
    Path | None,
    typer.Option("--tls", metavar="FILE", help="ca, certificate, private_key, server_name; default: the environment."),
]
ElectionId = Annotated[int, typer.Option(min=1, help="Election id; the client with the highest is the primary.")]

T = TypeVar("T")


def ask(
    address: str,
    device_id: int | None,
    tls: Path | None,
    question: Callable[[SwitchBrowser], Awaitable[T]],
    *,
    election_id: int | None = None,
) -> T:
    """Return a switch's answer; with an election id as its primary. Raises SessionError."""
    from controller.network.p4runtime.browsing import BROWSER_ID, SwitchBrowser  # noqa: PLC0415

    settings = tls_of(tls)

    async def asked() -> T:
        browser = SwitchBrowser(address, device_id, tls=settings, election_id=election_id or BROWSER_ID)
        try:
            await browser.open(writes=election_id is not None)
            return await question(browser)
        finally:
            await browser.close()

    return asyncio.run(asked())


def tls_of(file: Path | None) -> TlsSettings | None:
    """Return a file's TLS settings, None without a file; raise ConfigError."""
    if file is None:
        return None
    from dataplane.config import load  # noqa: PLC0415
    from dataplane.rpc.access.settings import TlsSettings  # noqa: PLC0415

    return load(file, TlsSettings)


def check_name(browser: SwitchBrowser, kind: str, name: str, known: Iterable[str]) -> None:
    """Raise SessionError, listing the known names, for one that the program does not have."""
    from dataplane.config.suggestions import did_you_mean  # noqa: PLC0415

    names = list(known)
    if name not in names:
        raise SessionError(browser.switch, "read", f"there is no {kind} {name!r}{did_you_mean(name, names)}")
