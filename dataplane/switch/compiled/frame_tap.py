"""The thread that explains frames copied by workers."""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from collections.abc import Sequence

from dataplane.native import kernel_library
from dataplane.native.doorbell import Bell, hear, ring
from dataplane.program.model import Program
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.memory.pool import BlockPool, Cache, give
from dataplane.switch.compiled.memory.rings import get, make_ring
from dataplane.switch.compiled.memory.taps import Tap, set_alternatives
from dataplane.switch.compiled.memory.worker import Worker
from dataplane.switch.pipeline import Frame
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.explainer import Depth
from dataplane.switch.tracing.live.prefilter import Alternative
from dataplane.switch.tracing.live.tracer import LiveTracer

RING_FRAMES = 256


class FrameTap:
    """Takes workers' copies, in blocks of `frames`, and passes them to a tracer, between `start` and `close`.

    `depth` returns how many frames wait at a port with a priority.
    """

    def __init__(self, frames: BlockPool, tracer: LiveTracer, depth: Depth) -> None:
        library = kernel_library(ring, hear, get, give)
        self._ring, self._hear = library.bind(ring), library.bind(hear)
        self._get, self._give = library.bind(get), library.bind(give)
        self._cache = Cache()
        self._cache.pool = frames.pool
        self._tracer, self._depth = tracer, depth
        self._bell = Bell(fd=os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), waiting=1)
        self._tap = Tap()
        self._tap.ring = make_ring(RING_FRAMES, self._bell)
        self._seen_passed_over = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="switch-traces", daemon=True)

    def attach(self, workers: Sequence[Worker]) -> None:
        """Make workers copy frames; call before they start."""
        for worker in workers:
            worker.tap = self._tap

    def prepare(self, program: Program, state: ForwardingState) -> Sequence[Alternative]:
        """Explain packets of this program from now on; return the argument for `look_for`."""
        return self._tracer.follow(program, state, self._depth)

    def look_for(self, alternatives: Sequence[Alternative]) -> None:
        """Make workers copy matching frames; only while they are paused."""
        set_alternatives(self._tap, alternatives)
        self._allow()

    def start(self) -> None:
        """Start explaining."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; the workers must have ended before."""
        self._is_closing = True
        self._ring(self._bell)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._bell.fd)

    def _run(self) -> None:
        waiting = select.poll()
        waiting.register(self._bell.fd, select.POLLIN)
        while not self._is_closing:
            self._allow()
            wakes_ns = self._tracer.wakes_ns()
            timeout_ms = None if wakes_ns is None else max(0, wakes_ns - time.monotonic_ns()) // 1_000_000 + 1
            waiting.poll(timeout_ms)
            self._hear(self._bell)
            self._look_at_all()

    def _allow(self) -> None:
        """Let workers copy as many frames as may be inspected now, and record how many they had to skip."""
        room = min(self._tracer.room(time.monotonic_ns()), RING_FRAMES)
        self._tap.allowed = self._tap.taken + room
        passed_over = self._tap.passed_over
        self._tracer.pass_over(passed_over - self._seen_passed_over)
        self._seen_passed_over = passed_over

    def _look_at_all(self) -> None:
        while block := self._get(self._tap.ring):
            packet = Packet.from_address(block)
            frame = Frame(packet.port, ctypes.string_at(packet.data.address, packet.length))
            now_us = packet.enqueued_ns // 1000
            self._give(self._cache, packet)
            self._tracer.look(frame, now_us)
