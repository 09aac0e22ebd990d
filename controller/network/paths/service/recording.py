"""Recording of the collector's hop records: batches wait for the database, which may be slow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from functools import partial
from typing import Final, Protocol

from collectors.feed.states.feed_time import FeedTime
from collectors.record_columns import RecordColumns
from controller.common.errors import PathError
from controller.network.paths.records.recorder import Recorder

LOGGER: Final = logging.getLogger("millrace.paths")
MAX_PENDING_BATCHES: Final = 64
"""Batches of records waiting for the database; more are dropped and counted."""


class RecordFeed(Protocol):
    """Source of records: `collectors.feed.client.FeedClient`."""

    def record_columns(self, reports_per_s: int | None = None) -> AsyncIterator[RecordColumns]:
        """Yield batches of hop records, sampled to about this many reports per second."""
        ...


class Recording:
    """Records a feed, in `worker`, which is the only one to use the recorder."""

    def __init__(self, recorder: Recorder, worker: Executor) -> None:
        self._recorder, self._worker = recorder, worker
        self.counters = dict.fromkeys(("records", "record_batches_dropped", "records_failed"), 0)
        self._pending: asyncio.Queue[RecordColumns] = asyncio.Queue(MAX_PENDING_BATCHES)

    async def receive(self, feed: RecordFeed, reports_per_s: int) -> None:
        """Take batches until cancelled; none waits for the database."""
        async for records in feed.record_columns(reports_per_s):
            if self._pending.full():
                self.counters["record_batches_dropped"] += 1
            elif len(records):
                self._pending.put_nowait(records)

    async def record(self, feed_time: FeedTime) -> None:
        """Record the batches taken, with their times by the path server's clock, until cancelled."""
        problem = ""
        while True:
            records = await self._pending.get()
            recorded = partial(self._recorder.record_columns, records, feed_time.offset_ns)
            try:
                await asyncio.get_running_loop().run_in_executor(self._worker, recorded)
                self.counters["records"] += len(records)
            except PathError as error:
                self.counters["records_failed"] += len(records)
                # A full disk fails every batch: each is counted, but a problem is logged once.
                if str(error) != problem:
                    LOGGER.warning("%s", error)
                problem = str(error)
            else:
                problem = ""
