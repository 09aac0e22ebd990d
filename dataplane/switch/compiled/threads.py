"""The threads of a native switch, and the means to hold them between bursts."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dataplane.native.doorbell import Bell
from dataplane.switch.compiled.memory.worker import Worker

_PR_SET_TIMERSLACK = 29
_JOIN_S = 10.0

Run = Callable[[Worker], None]
Ring = Callable[[Bell], None]


class WorkerThreads:
    """One thread per worker; each is inside `run`, which releases the GIL, or held.

    `run` must return soon after its worker's `stop` is set and its bell rung by `ring`.
    """

    def __init__(self, workers: Sequence[Worker], bells: Sequence[Bell], run: Run, ring: Ring) -> None:
        self._workers, self._bells = tuple(workers), tuple(bells)
        self._run, self._ring = run, ring
        self._owner = threading.RLock()
        self._gate = threading.Condition()
        self._holds = 0
        self._inside = 0
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"forward-{number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    @property
    def native_ids(self) -> tuple[int, ...]:
        """The kernel's number of each thread (gettid(2)), 0 before the start."""
        return tuple(thread.native_id or 0 for thread in self._threads)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold every worker outside of `run`; the same thread may nest it."""
        with self._owner:
            self._hold()
            try:
                yield
            finally:
                self._let_go()

    def exchange_run(self, run: Run) -> None:
        """Set another `run` for the workers to resume with; only while paused."""
        self._run = run

    def close(self) -> None:
        """End the threads; a second call does nothing."""
        with self.paused():
            self._closing = True
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_S)

    def _hold(self) -> None:
        with self._gate:
            self._holds += 1
            for worker, bell in zip(self._workers, self._bells, strict=True):
                worker.stop = 1
                self._ring(bell)
            self._gate.wait_for(lambda: self._inside == 0)

    def _let_go(self) -> None:
        with self._gate:
            self._holds -= 1
            if self._holds == 0:
                for worker in self._workers:
                    worker.stop = 0
            self._gate.notify_all()

    def _work(self, worker: Worker) -> None:
        # Timers may fire 50 us late unless a thread requests less; departures of frames must be punctual.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
        while True:
            with self._gate:
                self._gate.wait_for(lambda: self._holds == 0)
                if self._closing:
                    return
                self._inside += 1
                run = self._run
            try:
                run(worker)
            finally:
                with self._gate:
                    self._inside -= 1
                    self._gate.notify_all()
