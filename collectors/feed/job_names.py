"""Names of jobs, sent from their operator to a collector, across restarts of either."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from collectors.errors import FeedError
from collectors.values import JobNote

INTERVAL_S: Final = 2.0
"""Interval at which the names are sent again: a restarted collector knows none."""
_PATIENCE_S: Final = 5.0


class NameTaker(Protocol):
    """Recipient of names: `collectors.feed.client.FeedClient`, or one of several."""

    @property
    def address(self) -> str:
        """The gRPC address."""
        ...

    async def name_jobs(self, notes: Mapping[int, JobNote]) -> None:
        """Report all jobs that run; raise FeedError."""
        ...


async def report_jobs(
    collector: NameTaker,
    notes: Callable[[], Mapping[int, JobNote]],
    on_problem: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Report all jobs that run, by number, to a collector at intervals, until cancelled.

    A collector that cannot be reached is a problem, which is reported once as long as it stays the same.
    """
    problem = ""
    while True:
        try:
            await asyncio.wait_for(collector.name_jobs(notes()), _PATIENCE_S)
            problem = ""
        except (FeedError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_PATIENCE_S:.0f} s"
            if reason != problem:
                on_problem(f"the collector at {collector.address} did not receive the job names: {reason}")
            problem = reason
        await sleep(INTERVAL_S)
