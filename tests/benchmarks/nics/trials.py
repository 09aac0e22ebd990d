"""Trials: frames sent at a rate for a while, and what their reception cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.nics.generator import SATURATED_PPS, Generator
from tests.benchmarks.nics.receivers import Latencies, Receiver, Wakes
from tests.benchmarks.nics.usage import read_usage

_TRIES, _LEAST_OFFERED = 3, 0.97
_LOOK_S = 0.005
_QUIET_S = 0.1
_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a trial; `wakes` are the driver's own statistics, None for a plain socket."""

    offered_pps: float
    sent: int
    received: int
    took_s: float
    cpu_s: float
    sleeps: int
    wakes: Wakes | None
    latencies_us: tuple[float, float, float]
    """Median, 99th and 99.9th percentile."""

    @property
    def sent_pps(self) -> float:
        """Frames a second that the generator sent."""
        return self.sent / self.took_s

    @property
    def received_pps(self) -> float:
        """Frames a second that reached the consumer."""
        return self.received / self.took_s

    @property
    def lost(self) -> int:
        """Frames that the kernel took from the generator and the consumer never saw."""
        return self.sent - self.received

    @property
    def cpu_s_per_million(self) -> float:
        """Processor seconds of the receiving threads for a million packets received."""
        return 1e6 * self.cpu_s / max(self.received, 1)

    @property
    def sleeps_per_packet(self) -> float:
        """Voluntary context switches of the receiving threads."""
        return self.sleeps / max(self.received, 1)

    @property
    def interrupts_per_packet(self) -> float | None:
        """Waits that the device ended."""
        return None if self.wakes is None else self.wakes.interrupts / max(self.received, 1)

    @property
    def wakeups_per_packet(self) -> float | None:
        """All returns from a sleep, interrupts included, as the driver counts them."""
        return None if self.wakes is None else self.wakes.wakeups / max(self.received, 1)


def run_trial(receiver: Receiver, generator: Generator, rate_pps: float, duration_s: float) -> Trial:
    """Send for `duration_s`; return when nothing more has come for a tenth of a second."""
    first = [sheet.tally.timed for sheet in receiver.tallies]
    received, wakes = _received(receiver), receiver.read_wakes()
    usage = read_usage(receiver.threads)
    sent = generator.run(rate_pps, duration_s)
    _wait_until_quiet(receiver, received + sent.frames)
    used, woken = read_usage(receiver.threads).since(usage), receiver.read_wakes()
    latencies = np.concatenate(
        [sheet.latencies_ns(start) for sheet, start in zip(receiver.tallies, first, strict=True)]
    )
    return Trial(
        offered_pps=rate_pps,
        sent=sent.frames,
        received=_received(receiver) - received,
        took_s=sent.took_s,
        cpu_s=used.cpu_s,
        sleeps=used.sleeps,
        wakes=None if wakes is None or woken is None else woken.since(wakes),
        latencies_us=_percentiles_us(latencies),
    )


def run_steadily(receiver: Receiver, generator: Generator, rate_pps: float, duration_s: float) -> Trial:
    """Return a trial at a rate that the generator kept, or after a few tries the one in which it came nearest."""
    best: Trial | None = None
    for _ in range(_TRIES):
        trial = run_trial(receiver, generator, rate_pps, duration_s)
        if best is None or trial.sent_pps > best.sent_pps:
            best = trial
        if trial.sent_pps >= _LEAST_OFFERED * rate_pps:
            break
    assert best is not None
    return best


def run_saturated(receiver: Receiver, generator: Generator, duration_s: float) -> Trial:
    """Send as fast as the cable allows: the received rate is the ceiling."""
    return run_trial(receiver, generator, SATURATED_PPS, duration_s)


def idle_cpu_share(receiver: Receiver, duration_s: float) -> float:
    """Return the share of a processor that the receiving threads use while nothing comes."""
    time.sleep(_QUIET_S)
    before = read_usage(receiver.threads)
    time.sleep(duration_s)
    return read_usage(receiver.threads).since(before).cpu_s / duration_s


def _received(receiver: Receiver) -> int:
    return sum(sheet.tally.received for sheet in receiver.tallies)


def _wait_until_quiet(receiver: Receiver, expected: int) -> None:
    """Wait until all expected frames have come, or none any more."""
    now_s = last_s = time.monotonic()
    limit_s, last = now_s + _LIMIT_S, -1
    while now_s < min(limit_s, last_s + _QUIET_S):
        received = _received(receiver)
        if received >= expected:
            return
        if received != last:
            last, last_s = received, now_s
        time.sleep(_LOOK_S)
        now_s = time.monotonic()


def _percentiles_us(latencies_ns: Latencies) -> tuple[float, float, float]:
    if len(latencies_ns) == 0:
        return (float("nan"), float("nan"), float("nan"))
    p50, p99, p999 = np.percentile(latencies_ns, (50, 99, 99.9)) / 1_000
    return float(p50), float(p99), float(p999)
