"""The thread that owns the file: it serves requests in order, and commits many writes at once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from controller.apiserver.storage.log import Happened
from controller.apiserver.storage.sqlite.tables import Tables
from controller.common.errors import StorageError

MOST_WAITING: Final = 4096
"""Limit of waiting requests; more are refused."""
_MOST_AT_ONCE: Final = 512

Work = Callable[[Tables], Any]


@dataclass(frozen=True, slots=True)
class _Request:
    work: Work
    future: Future[Any]
    writes: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Outcome of a request."""

    future: Future[Any]
    result: Any
    error: BaseException | None


class Worker:
    """Runs functions on the tables in one thread; `happened` is called there with the events of each commit.

    A write returns its events, or None, with its result; it is answered once it is on disk.
    """

    def __init__(self, tables: Tables, committed: Callable[[list[Happened]], None]) -> None:
        self._tables, self._committed = tables, committed
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._lock, self._is_closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests not taken yet."""
        return self._requests.qsize()

    async def read(self, work: Work) -> Any:  # noqa: ANN401 - whatever the function gives
        """Return the result of a function on the tables, after all earlier requests."""
        return await self._ask(work, writes=False)

    async def write(self, work: Callable[[Tables], tuple[Any, Happened | None]]) -> Any:  # noqa: ANN401
        """Return the result of a function that changes the tables, once it is on disk."""
        return await self._ask(work, writes=True)

    async def close(self) -> None:
        """Finish earlier requests, then close the file; later requests are refused."""
        # Under the lock, so that no request is queued behind the None that ends the thread.
        with self._lock:
            self._is_closed = True
            self._requests.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _ask(self, work: Work, *, writes: bool) -> Any:  # noqa: ANN401
        future: Future[Any] = Future()
        with self._lock:
            if self._is_closed:
                raise StorageError("the storage is closed")
            if self._requests.qsize() >= MOST_WAITING:
                raise StorageError(f"the storage has {MOST_WAITING} requests waiting: try again")
            self._requests.put(_Request(work, future, writes))
        return await asyncio.wrap_future(future)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch: list[_Request] = []
            is_open = self._collect(batch)
            self._carry_out(batch)
        self._tables.database.close()

    def _collect(self, batch: list[_Request]) -> bool:
        """Wait for a request and collect those queued with it; return False when the storage closes."""
        request = self._requests.get()
        while request is not None:
            batch.append(request)
            if len(batch) == _MOST_AT_ONCE:
                return True
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return True
        return False

    def _carry_out(self, batch: Sequence[_Request]) -> None:
        outcomes: list[_Outcome] = []
        happened: list[Happened] = []
        failure: Exception | None = None
        before = self._tables.writes
        for request in batch:
            if request.future.cancelled():
                continue
            written = self._tables.writes
            try:
                result = request.work(self._tables)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                if self._tables.writes != written:
                    failure = error  # half done: roll back to the last commit
                    break
                outcomes.append(_Outcome(request.future, None, error))
                continue
            if request.writes:
                result, news = result
                happened += [] if news is None else [news]
            outcomes.append(_Outcome(request.future, result, None))
        if self._tables.writes != before:
            failure = self._commit(failure)
        if failure is not None:
            outcomes, happened = [_Outcome(request.future, None, failure) for request in batch], []
        self._committed(happened)
        for outcome in outcomes:
            _answer(outcome)

    def _commit(self, failure: Exception | None) -> Exception | None:
        """Commit what was written unless something failed; on failure roll everything back and return the error."""
        try:
            if failure is None:
                self._tables.commit()
        except StorageError as error:
            failure = error
        if failure is not None:
            self._tables.undo()
        return failure


def _answer(outcome: _Outcome) -> None:
    # Setting the result of a cancelled future would raise.
    if not outcome.future.set_running_or_notify_cancel():
        return
    if outcome.error is None:
        outcome.future.set_result(outcome.result)
    else:
        outcome.future.set_exception(outcome.error)
