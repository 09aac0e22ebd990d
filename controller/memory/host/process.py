"""The `millrace memory serve` process: one machine's tiers, until it is stopped."""

from __future__ import annotations

import asyncio
from typing import Final

from controller.memory.host.server import Host
from controller.memory.host.settings import HostSettings
from controller.memory.host.store import Store
from dataplane.clock import NS_PER_S
from dataplane.daemon import Daemon, Lifecycle
from dataplane.running import run_until


async def _serve(settings: HostSettings, lifecycle: Lifecycle[HostSettings]) -> None:
    with Store(settings) as store:
        store.measure()
        with Host(settings, store) as host:
            tiers = ", ".join(tier.settings.name for tier in store.tiers)
            lifecycle.ready(f"host {settings.name} at {host.address}, tiers {tiers}")
            await run_until(_sense(store, settings.sense_every_ns), lifecycle.stop)


async def _sense(store: Store, every_ns: int) -> None:
    """Measure the tiers again and again, away from the event loop: files may be slow."""
    while True:
        await asyncio.sleep(every_ns / NS_PER_S)
        await asyncio.to_thread(store.measure)


DAEMON: Final = Daemon("memory", HostSettings, _serve)
