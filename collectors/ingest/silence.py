"""A line for a collector that no report reaches: the commonest reason is a socket in another network namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from collectors.counters import Count, Counters

PATIENCE_S: Final = 10.0
_POLL_S: Final = 1.0


async def watch_for_silence(
    counters: Counters,
    port: int,
    host: str,
    *,
    warn: Callable[[str], None],
    tell: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Warn once if no report has arrived within `PATIENCE_S`, and tell when the first one does; then return."""
    await sleep(PATIENCE_S)
    if counters[Count.REPORTS]:
        return
    warn(f"no report has arrived on UDP port {port} for {PATIENCE_S:.0f} s: {reasons_of_silence(host)}")
    while not counters[Count.REPORTS]:
        await sleep(_POLL_S)
    tell("the first report has arrived")


def reasons_of_silence(host: str) -> str:
    """Return what to check for a collector whose reports should arrive at a host of the topology."""
    where = f"`millrace fabric exec {host} -- millrace collector serve -s FILE`"
    return (
        "no flow carries telemetry, no controller has set up the switches, or the collector does not run where they"
        f" send: in a fabric of `fabric up` that is {host}'s network namespace ({where})"
    )
