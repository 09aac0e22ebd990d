"""Driver threads: each runs the native loop over some of a port's queues without holding the GIL."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from dataplane.errors import PortError
from dataplane.native import kernel_library, pointer_to
from dataplane.nic.buffers.software_queue import ManagerThread
from dataplane.nic.driver.driver_state import LEAST_BATCH, MOST_BATCH, Counts, DriverState
from dataplane.nic.driver.kernels.driving import drive, read_counts, turn
from dataplane.nic.driver.kernels.polling import begin_pacing, pace
from dataplane.nic.flows.structures import Classifier
from dataplane.nic.modes import Mode
from dataplane.nic.nic_settings import NicSettings
from dataplane.nic.ports.queue import PortQueue
from dataplane.nic.statistics import ThreadStatistics

CLOSE_S = 10.0
_PR_SET_TIMERSLACK = 29
_NS_PER_US, _NS_PER_S = 1_000, 1_000_000_000
_NEVER_NS = 1 << 63


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The compiled kernels that Python calls."""

    drive: Callable[..., None]
    turn: Callable[..., int]
    pace: Callable[..., int]
    begin_pacing: Callable[..., None]
    read_counts: Callable[..., None]


@functools.cache
def _kernels() -> _Kernels:
    library = kernel_library(drive, turn, pace, begin_pacing, read_counts)
    bind = library.bind
    return _Kernels(bind(drive), bind(turn), bind(pace), bind(begin_pacing), bind(read_counts))


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages that a driver thread hands frames to; `owners` own their memory, and live as long as the thread runs."""

    classifier: Classifier
    manager: ManagerThread
    owners: tuple[object, ...]


class DriverThread:
    """A thread that serves some queues of a port, each with its number, or the same work in steps without a thread."""

    def __init__(
        self, name: str, queues: Sequence[tuple[int, PortQueue]], stages: Stages, settings: NicSettings
    ) -> None:
        self.name = name
        self._queues, self._stages = tuple(queues), stages
        self.state = _make_state(self._queues, settings)
        self.state.classifier, self.state.manager = stages.classifier, stages.manager
        self.state.bell = stages.manager.bell
        self._guard = threading.Lock()
        self._cpu_ns = 0
        self._runs = False
        self._thread: threading.Thread | None = None

    def start(self, cpu: int | None = None) -> None:
        """Start the thread, on one processor if one is given; raises PortError if there is no such processor."""
        kernels = _kernels()
        began: SimpleQueue[OSError | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(kernels, cpu, began), name=self.name, daemon=True)
        self._thread.start()
        if (error := began.get()) is not None:
            raise PortError(f"{self.name} cannot run on processor {cpu}: {error.strerror}")

    def _run(self, kernels: _Kernels, cpu: int | None, began: SimpleQueue[OSError | None]) -> None:
        # Timers may fire 50 us late unless a thread requests less; that would add to every pause.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
        try:
            if cpu is not None:
                os.sched_setaffinity(0, {cpu})
        except OSError as error:
            began.put(error)
            return
        with self._guard:
            self._runs = True
        began.put(None)
        try:
            kernels.drive(self.state)
        finally:
            with self._guard:
                self._runs = False
                self._cpu_ns = time.thread_time_ns()

    @property
    def native_id(self) -> int | None:
        """Return the thread's kernel id (gettid(2)), None without a thread."""
        return None if self._thread is None else self._thread.native_id

    @property
    def mode(self) -> Mode:
        """Return what the thread does while its queues are empty."""
        return Mode(self.state.pacer[0].mode)

    def set_mode(self, mode: Mode) -> None:
        """Change the mode from the next turn on; frames stay in their rings meanwhile. Only before `stop`."""
        self.state.pacer[0].mode = mode
        # One that sleeps until an interrupt would learn of it with the next frame only.
        os.eventfd_write(self._stages.manager.bell.fd, 1)

    def step(self, now_ns: int) -> int:
        """Run one turn at a given time; return how many frames came or went. Only without a running thread."""
        for _, queue in self._queues:
            queue.virtual_ns = now_ns
        moved = _kernels().turn(self.state)
        _kernels().pace(self.state.pacer, now_ns, moved, self.state.full)
        return moved

    def stop(self) -> None:
        """Ask the thread to end, waking it if it sleeps."""
        self.state.stop = 1
        os.eventfd_write(self._stages.manager.bell.fd, 1)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return False on timeout, or if it is the calling thread."""
        if self._thread is None or self._thread.ident is None:  # the system was out of threads
            return True
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def read(self) -> ThreadStatistics:
        """Return the thread's statistics so far; from any thread, at any time."""
        state, counts = self.state, Counts()
        _kernels().read_counts(state, counts)
        return ThreadStatistics(
            tuple(number for number, _ in self._queues),
            *(counts.received, counts.received_bytes, counts.handed_out, counts.called),
            *(counts.dropped_by_rule, counts.closing, counts.not_handed_out, state.sent),
            *(state.polls, state.empty_polls, state.pauses, state.wakeups, state.interrupts),
            self._read_cpu_ns() / _NS_PER_S,
            *(state.pacer[0].batch, state.pacer[0].pause_ns / _NS_PER_US, bool(state.is_waiting)),
        )

    def _read_cpu_ns(self) -> int:
        with self._guard:
            if self._runs and self._thread is not None and self._thread.ident is not None:
                return time.clock_gettime_ns(time.pthread_getcpuclockid(self._thread.ident))
            return self._cpu_ns


def _make_state(queues: Sequence[tuple[int, PortQueue]], settings: NicSettings) -> DriverState:
    state = DriverState(queue_count=len(queues))
    state.queues = pointer_to((ctypes.c_uint64 * len(queues))(*(queue.address for _, queue in queues)))
    state.numbers = pointer_to((ctypes.c_uint32 * len(queues))(*(number for number, _ in queues)))
    state.frames = pointer_to((ctypes.c_uint64 * MOST_BATCH)())
    state.lengths = pointer_to((ctypes.c_uint32 * MOST_BATCH)())
    state.stamps = pointer_to((ctypes.c_uint64 * MOST_BATCH)())
    state.stamp_kinds = pointer_to((ctypes.c_uint8 * MOST_BATCH)())
    for _, queue in queues if settings.rings.stamps != "none" else ():
        queue.stamps, queue.stamp_kinds = state.stamps, state.stamp_kinds
    pacer = state.pacer[0]
    pacer.mode, pacer.batch, pacer.target_batch = settings.mode, LEAST_BATCH, settings.target_batch
    pacer.least_pause_ns = settings.least_pause_us * _NS_PER_US
    pacer.most_pause_ns = settings.most_pause_us * _NS_PER_US
    # A queue without a descriptor cannot wake a thread, so none waits for it.
    can_wake = all(queue.fd >= 0 for _, queue in queues)
    pacer.quiet_ns = settings.quiet_us * _NS_PER_US if can_wake else _NEVER_NS
    return state


class Driver:
    """All driver threads of a port; `name` is the interface's."""

    def __init__(self, name: str, threads: Sequence[DriverThread]) -> None:
        self.name = name
        self.threads = tuple(threads)
        self._closed = False

    def start(self, cpus: Sequence[int] = ()) -> None:
        """Start all threads, on these processors in turn if some are given; raises PortError for unknown processors.

        If one fails to start, none runs afterwards.
        """
        try:
            for number, thread in enumerate(self.threads):
                thread.start(cpus[number % len(cpus)] if cpus else None)
        except PortError as error:
            self.close()
            raise PortError(f"interface {self.name}: {error}") from error
        except BaseException:
            self.close()
            raise

    def step(self, now_ns: int) -> int:
        """Run one turn of each thread's work at a given time; return how many frames came or went."""
        return sum(thread.step(now_ns) for thread in self.threads)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """End the threads; raises PortError, and leaves them their memory, if one does not end in time."""
        if self._closed:
            return
        for thread in self.threads:
            thread.stop()
        deadline = time.monotonic() + timeout_s
        hung = [each.name for each in self.threads if not each.join(max(deadline - time.monotonic(), 0.0))]
        if hung:
            problem = f"{', '.join(hung)} does not end: a function that a rule calls does not return"
            raise PortError(f"interface {self.name}: {problem}")
        self._closed = True
