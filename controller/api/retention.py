"""What is forgotten: old revisions, and decisions beyond a number."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from controller.api.registry.cache import ResourceCache
from controller.api.registry.encoding import key_of
from controller.api.registry.registry import Registry
from controller.api.resources.decision import DECISION
from controller.api.settings import Retention
from controller.errors import CompactedError, StorageError, UnavailableError
from controller.storage.values import MAX_CHANGES

LOGGER = logging.getLogger("millrace.api")

_ROUNDS: Final = 4
"""A revision is forgotten after `history_s`, and a fourth of it later at most."""


async def keep_within(retention: Retention, registry: Registry, cache: ResourceCache) -> None:
    """Forget what is too old, again and again, until cancelled; while the storage is away nothing is."""
    seen: list[int] = []
    while True:
        await asyncio.sleep(retention.history_s / _ROUNDS)
        try:
            await forget_decisions(retention.decisions, registry, cache)
            seen.append(await registry.storage.revision())
            if len(seen) > _ROUNDS:
                await registry.storage.compact(seen.pop(0))
        except CompactedError:
            continue  # another server was first
        except (StorageError, UnavailableError) as error:
            LOGGER.warning("nothing is forgotten: %s", error)


async def forget_decisions(most: int, registry: Registry, cache: ResourceCache) -> int:
    """Remove the oldest decisions beyond a number; return how many."""
    found = cache.all_of(DECISION)
    surplus = sorted(found, key=lambda one: (one.metadata.created_ns, one.metadata.name))[: max(len(found) - most, 0)]
    for start in range(0, len(surplus), MAX_CHANGES):
        part = surplus[start : start + MAX_CHANGES]
        await registry.write({key_of(DECISION, one.metadata.name): None for one in part})
    return len(surplus)
