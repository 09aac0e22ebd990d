"""Decisions on their way to the collector, whose history keeps them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

from collectors.errors import FeedError
from collectors.feed.statuses import MOST_MOVES
from collectors.values import FlowMove
from controller.network.paths.deciding.decide import Decision

LOGGER: Final = logging.getLogger("millrace.paths")
MOST_WAITING: Final = 10_000
"""Decisions that wait for a collector that is away; older ones are missing in its history."""
_AGAIN_S: Final = 1.0


class MoveTaker(Protocol):
    """Recipient of decisions: `collectors.feed.client.FeedClient`."""

    async def note_moves(self, moves: Sequence[FlowMove]) -> None:
        """Report at most 1,000 decisions; raise FeedError."""
        ...


class MoveReports:
    """Decisions that the collector has not been told; after a lost answer some are told twice."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._waiting: deque[FlowMove] = deque(maxlen=MOST_WAITING)
        self._some, self._sleep = asyncio.Event(), sleep

    def add(self, decisions: Iterable[Decision]) -> None:
        """Take decisions."""
        self._waiting.extend(map(move_of, decisions))
        if self._waiting:
            self._some.set()

    async def run(self, collector: MoveTaker) -> None:
        """Report decisions until cancelled."""
        problem = ""
        while True:
            await self._some.wait()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_MOVES))]
            try:
                await collector.note_moves(batch)
                problem = ""
            except FeedError as error:
                if str(error) != problem:
                    LOGGER.warning("decisions are not in the history yet: %s", error)
                problem = str(error)
                # Those that came meanwhile are newer: if there is no room for all, they stay.
                room = MOST_WAITING - len(self._waiting)
                self._waiting.extendleft(reversed(batch[max(0, len(batch) - room) :]))
                await self._sleep(_AGAIN_S)
            if not self._waiting:
                self._some.clear()


def move_of(decision: Decision) -> FlowMove:
    """Return a decision as the history has it."""
    of_path = {figures.switches: figures for figures in decision.candidates}
    old, new, flow = of_path.get(decision.old_path), of_path.get(decision.new_path), decision.flow
    return FlowMove(
        decision.time_ns,
        flow.src_host,
        flow.dst_host,
        flow.protocol,
        flow.src_port,
        flow.dst_port,
        decision.old_path,
        decision.new_path,
        decision.reason,
        None if old is None or new is None or not old.usable else old.cost_ns - new.cost_ns,
    )
