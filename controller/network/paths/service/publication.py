"""Publication of the path server's results: the newest set of routes, and the decisions that led to it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Final, TypeVar

from controller.network.intents import RouteSet
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.core import RECENT_DECISIONS, PathServerCore
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.round_result import RoundResult
from controller.network.paths.service.messages import route_set_message

LOGGER: Final = logging.getLogger("millrace.paths")
MAX_PENDING_DECISIONS: Final = 1024
"""Decisions waiting for one subscriber; more are dropped and counted."""

T = TypeVar("T")


class Publication:
    """Results of a core for any number of watchers, none while the core is following another path server's."""

    def __init__(self, core: PathServerCore) -> None:
        self._core = core
        self.routes = core.routes
        self.counters = {"decisions_dropped": 0}
        self._sent: tuple[RouteSet, bytes] | None = None
        self._subscribers: set[asyncio.Queue[Decision]] = set()
        self._balance_subscribers: set[asyncio.Queue[Rebalance]] = set()
        self._routes_changed = asyncio.Condition()
        self._recent = deque(core.decisions, maxlen=RECENT_DECISIONS)
        self._recent_changes = deque(core.rebalances, maxlen=RECENT_DECISIONS)

    def begin_anew(self) -> None:
        """Take the core's decisions so far as the recent ones, in place of those published."""
        self._recent.clear()
        self._recent.extend(self._core.decisions)
        self._recent_changes.clear()
        self._recent_changes.extend(self._core.rebalances)

    async def publish(self, result: RoundResult, routes: RouteSet) -> None:
        """Send watchers a round's decisions, and `routes`, its set with the context of a trace."""
        self._recent.extend(result.moves)
        self._recent_changes.extend(result.rebalances)
        for decision in result.moves:
            LOGGER.info("%s->%s: %s", decision.flow.src_host, decision.flow.dst_host, decision.reason)
            self._publish_to(self._subscribers, decision)
        for change in result.rebalances:
            LOGGER.info("all to %s at %s: %s", change.destination, change.switch, change.reason)
            self._publish_to(self._balance_subscribers, change)
        async with self._routes_changed:
            self.routes = routes
            self._routes_changed.notify_all()

    def _publish_to(self, subscribers: set[asyncio.Queue[T]], item: T) -> None:
        for queue in subscribers:
            if queue.full():
                self.counters["decisions_dropped"] += 1
            else:
                queue.put_nowait(item)

    async def encoded_routes(self) -> AsyncIterator[bytes]:
        """Yield the set in force, then always the newest; sets that a slow reader missed are skipped."""
        sent = None
        while True:
            async with self._routes_changed:
                while self._core.is_following or self.routes is sent:
                    await self._routes_changed.wait()
                sent = self.routes
            yield await self._in_bytes(sent)

    async def _in_bytes(self, routes: RouteSet) -> bytes:
        """Return the bytes of a set, encoded once for all watchers, while no other work waits."""
        if self._sent is None or self._sent[0] is not routes:
            self._sent = routes, await asyncio.to_thread(lambda: route_set_message(routes).SerializeToString())
        return self._sent[1]

    def decisions(self, recent: int) -> AsyncIterator[Decision]:
        """Return the last `recent` decisions, then all that follow, from when this path server decides."""
        return self._follow(self._recent, self._subscribers, recent)

    def rebalances(self, recent: int) -> AsyncIterator[Rebalance]:
        """Return the last `recent` changes of weights, then all that follow, likewise."""
        return self._follow(self._recent_changes, self._balance_subscribers, recent)

    async def _follow(self, items: Collection[T], subscribers: set[asyncio.Queue[T]], recent: int) -> AsyncIterator[T]:
        async with self._routes_changed:
            await self._routes_changed.wait_for(lambda: not self._core.is_following)
        queue: asyncio.Queue[T] = asyncio.Queue(MAX_PENDING_DECISIONS)
        # Copy and subscribe without an await between, so that nothing is missed or repeated.
        recorded = list(items)
        subscribers.add(queue)
        try:
            for item in recorded[max(0, len(recorded) - recent) :]:
                yield item
            while True:
                yield await queue.get()
        finally:
            subscribers.discard(queue)
