"""Captured reports through a collector, on the time of the capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from collectors.collector import Collector
from collectors.decode.payloads import payloads_of
from collectors.ingest.frames import FrameReader
from dataplane.clock import VirtualClock
from dataplane.nic.capture.pcap import Capture

LONGEST_GAP_NS: Final = 60_000_000_000
"""In a longer time without a frame nothing regular is done: the clock of the capture was set, or nothing happened."""

BATCH_NS: Final = 1_000_000
"""Frames no further apart are taken together, at the time of the last of them."""
BATCH_FRAMES: Final = 4096


@dataclass(slots=True)
class Regularly:
    """Something that is done at every interval of the capture's time."""

    interval_ns: int
    do: Callable[[], object]
    due_ns: int = 0


@dataclass(slots=True)
class Replayed:
    """Contents of a capture: counts of frames, reports, and cut or damaged frames; its start and end times."""

    frames: int = 0
    reports: int = 0
    broken: int = 0
    began_ns: int = 0
    ended_ns: int = 0


class Replay:
    """Passes the reports of captured frames to a collector whose clock is `clock`; `result` is the outcome so far."""

    def __init__(self, collector: Collector, clock: VirtualClock, regularly: Sequence[Regularly] = ()) -> None:
        self._collector, self._clock, self._regularly = collector, clock, regularly
        self._frames = FrameReader(collector.report_udp_port)
        self._batch: list[bytes] = []
        self._batch_began_ns = 0
        self.result = Replayed()

    def run(self, captures: Iterable[Capture]) -> None:
        """Take frames in their order; at the end do everything regular once more. Raises what `captures` raises."""
        try:
            for capture in captures:
                self._take(capture)
        finally:
            self._flush()
            for each in self._regularly if self.result.frames else ():
                each.do()

    def _take(self, capture: Capture) -> None:
        # Frames of several interfaces may be out of order by a little.
        now_ns = max(capture.time_ns, self._clock.now_ns())
        if not self.result.frames:
            self.result.began_ns = now_ns
            self._begin_at(now_ns)
        if self._is_due(now_ns) or now_ns - self._batch_began_ns > BATCH_NS or len(self._batch) == BATCH_FRAMES:
            self._flush()
            self._batch_began_ns = now_ns
        self._go_to(now_ns)
        self.result.frames += 1
        self.result.ended_ns = now_ns
        self._batch.append(capture.frame)

    def _flush(self) -> None:
        """Give the collector the reports among the frames that have gathered."""
        block, before = payloads_of(self._batch), self.result.frames - len(self._batch) + 1
        self._batch.clear()
        payloads = self._frames.payloads(
            block.data, block.places, block.lengths, lambda number: f"frame {before + number}"
        )
        self.result.reports += len(payloads)
        self.result.broken = self._frames.malformed
        self._collector.receive_many(payloads)

    def _is_due(self, now_ns: int) -> bool:
        return any(each.due_ns <= now_ns for each in self._regularly)

    def _begin_at(self, now_ns: int) -> None:
        for each in self._regularly:
            each.due_ns = now_ns + each.interval_ns

    def _go_to(self, now_ns: int) -> None:
        """Run regular work that is due until then, each at its time."""
        if now_ns - self._clock.now_ns() > LONGEST_GAP_NS:
            self._clock.advance_to(now_ns)
            self._begin_at(now_ns)
        while self._regularly:
            first = min(self._regularly, key=lambda each: each.due_ns)
            if first.due_ns > now_ns:
                break
            self._clock.advance_to(max(first.due_ns, self._clock.now_ns()))
            first.do()
            first.due_ns += first.interval_ns
        self._clock.advance_to(now_ns)
