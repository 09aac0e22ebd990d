"""Upload and compaction beside a collector's history, in threads: a store that is away delays nothing else."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from collectors.counters import Count, Counters
from collectors.errors import CollectorError, HistoryError
from collectors.history.objects.bucket import Bucket
from collectors.history.objects.compaction import Compactor
from collectors.history.objects.settings import ObjectStoreSettings
from collectors.history.objects.upload import Uploader
from collectors.shards.membership import Announcement, Membership
from collectors.shards.settings import CollectorLeases
from dataplane.clock import NS_PER_S
from dataplane.leases.opening import open_leases

_LEASE_NS: Final = 30_000_000_000
_COMPACTOR: Final = "compactor"
_TIMEOUT_S: Final = 1.0


class LongHistory:
    """Uploads a folder's closed files, and compacts what all have uploaded while it has the lease for that.

    `run` until cancelled; raises HistoryError without credentials. Failures are counted, reported once as long as they
    stay the same, and tried again.
    """

    def __init__(  # noqa: PLR0917 - a history and its surroundings
        self,
        folder: Path,
        settings: ObjectStoreSettings,
        shard: str,
        leases: CollectorLeases | None,
        counters: Counters,
        on_problem: Callable[[str], None],
    ) -> None:
        """Without `leases` this is the only compactor."""
        self._settings, self._counters, self._on_problem = settings, counters, on_problem
        self._bucket = Bucket(settings, os.environ)
        self._uploader = Uploader(folder, shard, self._bucket)
        self._compactor = Compactor(self._bucket, settings, time.time)
        self._end = threading.Event()
        self._undo = ExitStack()
        self._membership: Membership | None = None
        if leases is not None and settings.compact:
            storage = self._undo.enter_context(open_leases(leases.sqlite, leases.etcd, _TIMEOUT_S, CollectorError))
            me = Announcement(_COMPACTOR, "", 0, shard)
            self._membership = Membership(storage, me, lease_ns=_LEASE_NS, prefix="history/")
        self._problems: dict[str, str] = {}

    def __str__(self) -> str:
        return f"long history in {self._bucket}"

    async def run(self) -> None:
        """Upload and compact until cancelled."""
        works: list[tuple[Callable[[], None], int]] = [(self._upload, self._settings.retry_ns)]
        if self._settings.compact:
            works.append((self._compact, self._settings.compact_every_ns))
        if self._membership is not None:
            works.append((self._membership.step, _LEASE_NS // 10))
        loop = asyncio.get_running_loop()
        # Threads of their own: those that all share would be taken for good.
        with ThreadPoolExecutor(len(works), thread_name_prefix="long history") as threads:
            working = asyncio.gather(*(loop.run_in_executor(threads, self._repeat, *work) for work in works))
            try:
                await asyncio.shield(working)
            finally:
                self._end.set()
                # A thread cannot be cancelled; each ends within the store's timeout.
                await asyncio.wait((working,))
                self.close()

    def close(self) -> None:
        """Give the lease back and close its storage."""
        if self._membership is not None:
            self._membership.release()
        self._undo.close()

    def _repeat(self, work: Callable[[], None], interval_ns: int) -> None:
        while True:
            try:
                work()
                self._problems.pop(work.__name__, None)
            except HistoryError as error:
                self._counters[Count.OBJECT_STORE_FAILED] += 1
                if self._problems.get(work.__name__) != str(error):
                    self._on_problem(str(error))
                self._problems[work.__name__] = str(error)
            if self._end.wait(interval_ns / NS_PER_S):
                return

    def _upload(self) -> None:
        before = self._uploader.uploaded_files
        try:
            self._uploader.step(self._end.is_set)
        finally:
            self._counters[Count.HISTORY_UPLOADED] += self._uploader.uploaded_files - before

    def _compact(self) -> None:
        if self._membership is None or self._membership.generation is not None:
            self._compactor.step(self._stopped)

    def _stopped(self) -> bool:
        return self._end.is_set() or (self._membership is not None and self._membership.generation is None)
