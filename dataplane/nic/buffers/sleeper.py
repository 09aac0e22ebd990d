"""Python threads that sleep, with a deadline, until a driver thread has something for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.native.doorbell import Bell
from dataplane.nic.buffers.kernel_calls import queue_kernels


class Sleeper:
    """The owner of a bell. One thread sleeps on it; other waiters check when that one wakes; any may wake it.

    A signal handler may close it in the middle of a wait by the same thread.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MonotonicClock()
        self._changed = threading.Condition()
        self._sleeping: int | None = None
        """The thread that sleeps on the bell."""
        self.bell = Bell(fd=os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Return whether the condition, checked whenever the bell rings, came true in time."""
        deadline_ns = self._clock.now_ns() + round(timeout_s * NS_PER_S)
        while not condition():
            left_ns = deadline_ns - self._clock.now_ns()
            if left_ns <= 0:
                return False
            self._sleep(condition, left_ns)
        return True

    def _sleep(self, condition: Callable[[], bool], timeout_ns: int) -> None:
        """Sleep on the bell or, if another thread already does, until that thread has woken."""
        own = threading.get_ident()
        try:
            with self._changed:
                if self._sleeping not in {None, own}:
                    if not condition():
                        self._changed.wait(timeout_ns / NS_PER_S)
                    return
                self._sleeping = own
            queue_kernels().arm_bell(self.bell)
            # A condition that came true for others earlier, while the bell was not armed, rang nothing.
            self._tell_others()
            if not condition():
                queue_kernels().sleep_on(self.bell, timeout_ns)
        finally:
            if self._sleeping == own:
                queue_kernels().disarm_bell(self.bell)
                self._sleeping = None
                self._tell_others()

    def _tell_others(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wake(self) -> None:
        """Make the sleeping thread check its condition."""
        with self._changed:
            if self.bell.fd >= 0:
                os.eventfd_write(self.bell.fd, 1)

    def fileno(self) -> int:
        """Return the eventfd; -1: closed."""
        return int(self.bell.fd)

    def close(self) -> None:
        """Close the eventfd, which no thread may ring any more; a sleeper's condition must already be true."""
        self.wake()
        with self._changed:
            while self._sleeping not in {None, threading.get_ident()}:
                self._changed.wait()
            descriptor, self.bell.fd = self.bell.fd, -1
            if descriptor >= 0:
                os.close(descriptor)
