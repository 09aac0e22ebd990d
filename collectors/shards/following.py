"""The live collectors over time, for controllers and readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from collectors.errors import CollectorError
from collectors.shards.live import LiveCollectors
from collectors.shards.settings import CollectorLeases
from collectors.shards.values import LiveCollector
from dataplane.leases.opening import open_leases

LOOK_S: Final = 0.05
_TIMEOUT_S: Final = 0.5


async def live_collectors(
    leases: CollectorLeases, warn: Callable[[str], None]
) -> AsyncGenerator[tuple[LiveCollector, ...], None]:
    """Yield the live collectors as soon as they are known, and whenever they have changed, endlessly.

    Raise CollectorError if the storage cannot be opened; `warn` is called once when it stops answering.
    """
    storage = await asyncio.to_thread(open_leases, leases.sqlite, leases.etcd, _TIMEOUT_S, CollectorError)
    with storage:
        collectors, told = LiveCollectors(storage), ""
        last: tuple[LiveCollector, ...] | None = None
        while True:
            await asyncio.to_thread(collectors.step)
            if collectors.problem and collectors.problem != told:
                warn(f"leases of collectors: {collectors.problem}")
            told = collectors.problem
            if collectors.live is not None and collectors.live != last:
                last = collectors.live
                yield last
            await asyncio.sleep(LOOK_S)
