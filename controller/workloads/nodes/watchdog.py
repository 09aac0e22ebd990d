"""Keep-alive for systemd's watchdog (sd_watchdog_enabled(3), `WatchdogSec`), which restarts a manager that hangs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from dataplane.daemon.notify import notify

_US_PER_S: Final = 1_000_000
_A_PERIOD: Final = 3
"""Feedings per period: one may be late."""


def interval_s(environment: Mapping[str, str], process: int) -> float | None:
    """Return the time between two feedings in seconds; None without a watchdog on this process."""
    period, watched = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(process))
    if not (period.isascii() and period.isdecimal()) or int(period) == 0 or watched != str(process):
        return None
    return int(period) / _US_PER_S / _A_PERIOD


async def feed_watchdog() -> None:
    """Feed until cancelled, as long as the event loop and its threads work; return at once without a watchdog."""
    wait_s = interval_s(os.environ, os.getpid())
    while wait_s is not None:
        # With all threads stuck in the kernel the event loop still runs, but no pod can be handled.
        await asyncio.to_thread(int)
        notify("WATCHDOG=1")
        await asyncio.sleep(wait_s)
