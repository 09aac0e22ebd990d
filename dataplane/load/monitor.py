"""Monitors a daemon's own load and logs the start of an overload, with cause and remedy, and its end, once each.

A cause has to hold for two samples in a row before it counts, and to be absent for five before it ends, so that a burst
does not fill the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.load.processor import ProcessorTimes, ReadTimes, processor_times
from dataplane.load.values import DaemonLoad, DropRate, Overload, QueueLoad, ThreadLoad

INTERVAL_S: Final = 1.0
"""Time between two samples."""
_LOOKS: Final = 10
"""Timers per interval, with which the event loop's lag is measured."""
BEGIN_AFTER: Final = 2
END_AFTER: Final = 5
LONG_LAG_NS: Final = 500_000_000
"""An event loop that is this late answers nothing in time."""
BUSY_SHARE: Final = 0.95
"""A thread that runs for this share of the time has no reserve."""
LONG_WAIT: Final = 0.3
"""A lag is attributed to the machine if the main thread waited this share of the time for a processor."""
_MACHINE: Final = "other processes use the processors: give this daemon its own, or move it to another machine"
_LEAST_NS: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class Cause:
    """A current reason for overload, and its remedy; `key` identifies it, independent of its figures."""

    key: str
    text: str
    advice: str


ReadQueue = Callable[[], QueueLoad]
ReadCounters = Callable[[], Mapping[str, int]]
Look = Callable[[], Cause | None]


@dataclass(slots=True)
class _TrackedCause:
    """A cause as last seen: its start, and for how many consecutive samples it has been present or absent."""

    cause: Cause
    since_ns: int
    seen: int = 0
    missed: int = 0

    @property
    def counts(self) -> bool:
        return self.seen >= BEGIN_AFTER


class LoadMonitor:
    """Samples one daemon's load, in the event loop's thread only. `load` may be read at any time."""

    def __init__(
        self,
        log: logging.Logger,
        *,
        loop_advice: str,
        clock: Clock | None = None,
        times: ReadTimes = processor_times,
    ) -> None:
        """Log to `log`; `loop_advice` is the remedy for a busy event loop or thread of this daemon."""
        self._log, self._loop_advice = log, loop_advice
        self._clock, self._times = clock or MonotonicClock(), times
        self._queues: list[tuple[ReadQueue, str, float, int | None]] = []
        self._counters: list[tuple[ReadCounters, Mapping[str, str], dict[str, int]]] = []
        self._looks: list[Look] = []
        self._tracked: dict[str, _TrackedCause] = {}
        self._last_ns, self._last_times = self._clock.now_ns(), times()
        self._load = DaemonLoad()

    def watch_queue(
        self, read: ReadQueue, advice: str, *, full_from: float = 0.9, oldest_ns: int | None = None
    ) -> None:
        """Watch a queue: too long from this share of its limit, or when its oldest item is older than `oldest_ns`."""
        self._queues.append((read, advice, full_from, oldest_ns))

    def watch_counters(self, read: ReadCounters, advice: Mapping[str, str]) -> None:
        """Watch counters of dropped items: each that grows is a cause, with the advice under its name."""
        self._counters.append((read, advice, {name: read().get(name, 0) for name in advice}))

    def watch(self, look: Look) -> None:
        """Call `look` at each sample for an additional cause."""
        self._looks.append(look)

    @property
    def load(self) -> DaemonLoad:
        """The load of the last interval; overloads have their duration so far."""
        return self._load

    async def run(self) -> None:
        """Sample until cancelled."""
        late_ns = deque[int](maxlen=_LOOKS)
        pause_ns = int(INTERVAL_S * NS_PER_S) // _LOOKS
        while True:
            for _ in range(_LOOKS):
                begun_ns = self._clock.now_ns()
                await asyncio.sleep(pause_ns / NS_PER_S)
                late_ns.append(max(self._clock.now_ns() - begun_ns - pause_ns, 0))
            self.sample(max(late_ns))

    def sample(self, lag_ns: int) -> DaemonLoad:
        """Return the load since the last sample, given the event loop's maximum lag of `lag_ns`; log transitions."""
        now_ns, times = self._clock.now_ns(), self._times()
        spent_ns = max(now_ns - self._last_ns, 1)
        threads = self._threads(times, spent_ns)
        waiting = (times.waited_ns - self._last_times.waited_ns) / spent_ns
        cores = (times.process_ns - self._last_times.process_ns) / spent_ns
        queues = tuple(read() for read, *_ in self._queues)
        drops, drop_causes = self._drops(spent_ns)
        self._last_ns, self._last_times = now_ns, times
        causes = [
            # Shares over a very short time are meaningless.
            *(self._processor_causes(threads, waiting, lag_ns) if spent_ns >= _LEAST_NS else ()),
            *self._queue_causes(queues),
            *drop_causes,
            *(cause for look in self._looks if (cause := look()) is not None),
        ]
        self._take(causes, now_ns)
        overloads = tuple(
            Overload(tracked.cause.text, tracked.cause.advice, now_ns - tracked.since_ns, tracked.cause.key)
            for tracked in self._tracked.values()
            if tracked.counts
        )
        self._load = DaemonLoad(cores, waiting, lag_ns, threads, queues, drops, overloads)
        return self._load

    def _threads(self, times: ProcessorTimes, spent_ns: int) -> tuple[ThreadLoad, ...]:
        before = self._last_times.threads_ns
        shares = [ThreadLoad(name, (ns - before.get(name, 0)) / spent_ns) for name, ns in times.threads_ns.items()]
        return tuple(sorted(shares, key=lambda thread: -thread.share))

    def _processor_causes(self, threads: tuple[ThreadLoad, ...], waiting: float, lag_ns: int) -> Iterator[Cause]:
        if lag_ns >= LONG_LAG_NS:
            advice = _MACHINE if waiting >= LONG_WAIT else self._loop_advice
            yield Cause("loop", f"the event loop was late by {lag_ns / NS_PER_S:.1f} s", advice)
        for thread in threads:
            if thread.share >= BUSY_SHARE:
                text = f"thread {thread.name} used {thread.share:.0%} of a core"
                yield Cause(f"thread {thread.name}", text, self._loop_advice)

    def _queue_causes(self, queues: tuple[QueueLoad, ...]) -> Iterator[Cause]:
        for queue, (_, advice, full_from, oldest_ns) in zip(queues, self._queues, strict=True):
            limit, waited_ns = queue.limit, queue.oldest_ns
            if limit is not None and queue.length >= full_from * limit:
                yield Cause(queue.name, f"{queue.name}: {queue.length} of at most {limit}", advice)
            elif oldest_ns is not None and waited_ns is not None and waited_ns > oldest_ns:
                yield Cause(queue.name, f"{queue.name}: the oldest has waited for {waited_ns / NS_PER_S:.1f} s", advice)

    def _drops(self, spent_ns: int) -> tuple[tuple[DropRate, ...], list[Cause]]:
        rates: list[DropRate] = []
        causes: list[Cause] = []
        for read, advice, before in self._counters:
            counted = read()
            for name in advice:
                more, before[name] = counted.get(name, 0) - before[name], counted.get(name, 0)
                if more > 0:
                    rates.append(DropRate(name, more * NS_PER_S / spent_ns))
                    causes.append(Cause(f"drops {name}", f"{name}: {rates[-1].per_s:.0f} a second", advice[name]))
        return tuple(rates), causes

    def _take(self, causes: list[Cause], now_ns: int) -> None:
        present = {cause.key: cause for cause in causes}
        for key, cause in present.items():
            tracked = self._tracked.setdefault(key, _TrackedCause(cause, now_ns))
            tracked.cause, tracked.missed, tracked.seen = cause, 0, tracked.seen + 1
            if tracked.seen == BEGIN_AFTER:
                self._log.warning("overloaded: %s; %s", cause.text, cause.advice)
        for key in [key for key in self._tracked if key not in present]:
            tracked = self._tracked[key]
            tracked.missed += 1
            if not tracked.counts:
                del self._tracked[key]
            elif tracked.missed >= END_AFTER:
                del self._tracked[key]
                lasted_s = (now_ns - tracked.since_ns) / NS_PER_S
                self._log.info("no longer overloaded (%s), after %.0f s", key, lasted_s)
