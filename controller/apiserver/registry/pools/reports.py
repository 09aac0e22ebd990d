"""Reports of holders, batched: those that arrive while a pool is being written go with its next write.

A pool is one resource: if each report were a separate write, many holders would keep losing races with each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.apiserver.registry.pools.shares import report
from controller.apiserver.registry.registry import Registry
from controller.apiserver.resources import UnitPool
from controller.apiserver.resources.unit_pool import UNIT_POOL, HolderStatus
from controller.common.errors import ApiError, TooManyError

MOST_WAITING: Final = 4096
"""Reports that may wait for one pool; more are refused."""
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A report, its check, and the future for its outcome."""

    status: HolderStatus
    check: Callable[[UnitPool], None]
    done: asyncio.Future[UnitPool]


@dataclass(slots=True)
class _Line:
    """Reports that wait for a pool, and the task that writes them."""

    waiting: list[_Waiting] = field(default_factory=list[_Waiting])
    writing: list[_Waiting] = field(default_factory=list[_Waiting])
    task: asyncio.Task[None] | None = None


class PoolReports:
    """Accepts reports; not thread-safe: use it from one event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lines: dict[str, _Line] = {}

    async def report(self, pool: str, status: HolderStatus, check: Callable[[UnitPool], None]) -> UnitPool:
        """Return a pool with a holder's report; raise if `check` refuses it or it promises too much."""
        line = self._lines.setdefault(pool, _Line())
        if len(line.waiting) >= MOST_WAITING:
            raise TooManyError(f"UnitPool {pool}: {MOST_WAITING} reports are waiting", _AGAIN_S)
        waiting = _Waiting(status, check, asyncio.get_running_loop().create_future())
        line.waiting.append(waiting)
        if line.task is None:
            line.task = asyncio.create_task(self._write_all(pool, line))
        return await waiting.done

    async def _write_all(self, pool: str, line: _Line) -> None:
        try:
            # Reports that arrive during a write are written together by the next one.
            while line.waiting:
                line.writing, line.waiting = line.waiting, []
                await self._write(pool, line.writing)
        finally:
            del self._lines[pool]
            for waiting in (*line.writing, *line.waiting):
                waiting.done.cancel()

    async def _write(self, pool: str, batch: Sequence[_Waiting]) -> None:
        """Write reports together; skip those that are refused, and notify their senders."""
        refused: dict[int, ApiError] = {}

        def reported(pool: UnitPool) -> UnitPool:
            # A conflict calls this again, and only the last attempt counts.
            refused.clear()
            now_ns = self._registry.now_ns()
            for number, waiting in enumerate(batch):
                try:
                    waiting.check(pool)
                    pool = report(pool, waiting.status, now_ns)
                except ApiError as error:
                    refused[number] = error
            return pool

        try:
            after = await self._registry.change(UNIT_POOL, pool, reported)
        except ApiError as error:
            _tell(batch, dict.fromkeys(range(len(batch)), error), None)
        except Exception as error:
            _tell(batch, dict.fromkeys(range(len(batch)), error), None)
            raise
        else:
            _tell(batch, refused, after)


def _tell(batch: Sequence[_Waiting], refused: Mapping[int, Exception], after: UnitPool | None) -> None:
    """Notify all who still wait of the outcome of their report."""
    for number, waiting in enumerate(batch):
        if waiting.done.done():
            continue
        if (why := refused.get(number)) is not None:
            waiting.done.set_exception(why)
        elif after is not None:
            waiting.done.set_result(after)
