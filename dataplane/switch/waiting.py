"""Waits for descriptors or for an instant: epoll, whose own timeout has only millisecond resolution, and a timerfd."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

from dataplane.clock import NS_PER_S

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o2004000
_ABSOLUTE = 1
_PIPE_BYTES = 65536


class _Instant(ctypes.Structure):
    """struct itimerspec: interval and value, each in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class Waiter:
    """Watches descriptors and one timer on the monotonic clock; `wake` may be called from any thread or signal."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll = select.epoll()
        self._armed_ns = 0
        for descriptor in (self._timer, self._woken):
            self._epoll.register(descriptor, select.EPOLLIN)

    def watch(self, descriptor: int) -> None:
        """Make `wait` also return when this descriptor is readable, closed at its other end, or in error."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        self._epoll.unregister(descriptor)

    def wake(self) -> None:
        """Make the current or the next `wait` return."""
        with suppress(BlockingIOError):  # full: enough to wake it
            os.write(self._wake, b"\0")

    def wait(self, until_ns: int | None, now_ns: int) -> Sequence[int]:
        """Return the watched descriptors that are ready, at `until_ns` (None: never) at the latest."""
        due = until_ns is not None and until_ns <= now_ns
        if not due and until_ns is not None and until_ns != self._armed_ns:
            self._arm(until_ns)
        ready = [descriptor for descriptor, _ in self._epoll.poll(0 if due else -1)]
        if self._timer in ready:
            ready.remove(self._timer)
            os.read(self._timer, 8)
            self._armed_ns = 0
        if self._woken in ready:
            ready.remove(self._woken)
            os.read(self._woken, _PIPE_BYTES)
        return ready

    @contextmanager
    def calling(self, handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
        """Call these at signals, which end the current wait; do nothing in threads other than the main one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, lambda *_, call=call: call()) for number, call in handlers.items()}
        # Python runs handlers between bytecodes: a signal just before epoll_wait, or one that the kernel delivers to
        # another thread, would not end the wait.
        woken_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken_before)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _arm(self, until_ns: int) -> None:
        instant = _Instant(0, 0, *divmod(until_ns, NS_PER_S))
        if self._libc.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(instant), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        self._armed_ns = until_ns

    def close(self) -> None:
        """Close the waiter's own descriptors."""
        self._epoll.close()
        for descriptor in (self._timer, self._woken, self._wake):
            os.close(descriptor)

    def __enter__(self) -> Waiter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
