"""The `millrace memory pool` process: a pool over its hosts, until it is stopped."""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import AsyncExitStack
from typing import Final

from prometheus_client import CollectorRegistry

from controller.learning.errors import LearningError
from controller.memory.errors import MemoryPoolError
from controller.memory.frame_server import FrameLimits, FrameServer
from controller.memory.pool.deciding import Decider, policy_of, rule_of
from controller.memory.pool.metrics import Metrics
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.service import PoolTalk, status_of
from controller.memory.pool.settings import MemoryPoolSettings
from dataplane.daemon import Daemon, Lifecycle
from dataplane.metrics_server import serve_metrics
from dataplane.running import run_until

LOGGER: Final = logging.getLogger("millrace.memory-pool")
_SENSE_S: Final = 60.0


def decider_of(settings: MemoryPoolSettings) -> Decider:
    """Return who decides by the settings; raise LearningError for an unusable checkpoint."""
    policy = None if settings.learned is None else policy_of(settings.learned)
    return Decider(rule_of(settings.rule), policy)


async def _serve(settings: MemoryPoolSettings, lifecycle: Lifecycle[MemoryPoolSettings]) -> None:
    decider = decider_of(settings)
    # Hosts that do not answer would stop the event loop, and signals with it.
    pool = await asyncio.to_thread(MemoryPool, settings, decider)
    try:
        await asyncio.to_thread(decider.open)
        async with AsyncExitStack() as stack:
            registry = CollectorRegistry()
            registry.register(Metrics(lambda: status_of(pool)))
            where = serve_metrics(registry, settings.metrics, stack, MemoryPoolError)
            server = FrameServer(settings.address, None, FrameLimits(), lambda _: PoolTalk(pool))
            stack.enter_context(server)
            hosts = ", ".join(host.name for host in settings.hosts)
            lifecycle.ready(f"pool {settings.name} of {hosts} at {server.address}{where}")
            await run_until(_sense(pool, decider), lifecycle.stop)
    finally:
        await asyncio.to_thread(functools.partial(_close, pool, decider))


async def _sense(pool: MemoryPool, decider: Decider) -> None:
    while True:
        await asyncio.sleep(_SENSE_S)
        await asyncio.to_thread(pool.measure)
        if decider.policy is not None and decider.policy.is_learning:
            try:
                await asyncio.to_thread(decider.policy.save)
            except LearningError as error:
                LOGGER.warning("%s", error)


def _close(pool: MemoryPool, decider: Decider) -> None:
    pool.close()
    decider.close()


DAEMON: Final = Daemon("memory-pool", MemoryPoolSettings, _serve)
