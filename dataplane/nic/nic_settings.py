"""Receive settings of a Nic, with their costs and delays."""

from __future__ import annotations

from dataclasses import dataclass, field

from dataplane.errors import PortError
from dataplane.nic.modes import Mode
from dataplane.nic.ports.queue import PortKind
from dataplane.nic.settings import RingSettings

TIMER_US = 25
"""Longest overrun of a sleep; a pause no longer than this is not worth a timer."""
_MOST_US = 1_000_000


@dataclass(frozen=True, slots=True)
class NicSettings:
    """The defaults are those of `balanced`.

    kind, queues, rings: the request to the device. threads: driver threads, which share the queues evenly, None for one
    per queue, 0 for none: the caller runs each turn itself (`Nic.step`). cpus: processors to pin the threads to, in
    turn. mode: see `Mode`; the other values apply to Mode.HYBRID. target_batch: frames that a pause between two polls
    should yield. least_pause_us, most_pause_us: bounds of that pause; at the lower bound the thread does not pause at
    all. quiet_us: idle time after which the thread goes back to waiting.
    """

    kind: PortKind = PortKind.PACKET_V2
    queues: int = 1
    threads: int | None = None
    cpus: tuple[int, ...] = ()
    mode: Mode = Mode.HYBRID
    target_batch: int = 128
    least_pause_us: int = TIMER_US
    most_pause_us: int = 250
    quiet_us: int = 1_000
    rings: RingSettings = field(default_factory=RingSettings)

    def __post_init__(self) -> None:
        if self.queues < 1:
            raise PortError(f"a Nic has at least one queue, not {self.queues}")
        if self.threads is not None and not 0 <= self.threads <= self.queues:
            raise PortError(f"{self.queues} queues are served by 1 to {self.queues} threads, or 0, not {self.threads}")
        if not 0 < self.least_pause_us <= self.most_pause_us <= _MOST_US:
            bounds = f"{self.least_pause_us} to {self.most_pause_us}"
            raise PortError(f"pauses of {bounds} microseconds are not within 1 to {_MOST_US}")
        if self.target_batch < 1 or self.quiet_us < 0:
            raise PortError("target_batch must be at least 1, quiet_us at least 0")

    @classmethod
    def balanced(cls, kind: PortKind = PortKind.PACKET_V2, queues: int = 1) -> NicSettings:
        """Return settings with a low cost per frame; polling delays a frame by 0.275 ms at most."""
        return cls(kind, queues)

    @classmethod
    def low_latency(cls, kind: PortKind = PortKind.PACKET_V2, queues: int = 1) -> NicSettings:
        """Return settings under which a thread polls without a pause while frames arrive, and sleeps after silence.

        Meanwhile each thread needs a processor to itself, as does a consumer in its own thread.
        """
        return cls(kind, queues, least_pause_us=1, most_pause_us=1)

    @classmethod
    def throughput(cls, kind: PortKind = PortKind.PACKET_V3, queues: int = 1) -> NicSettings:
        """Return settings with the lowest cost per frame, which they delay by 1 ms or slightly more.

        With TPACKET_V3 the kernel gathers frames in blocks and wakes the thread for each block, which spares it a
        timer.
        """
        if kind is PortKind.PACKET_V3:
            # A block is retired by time, however empty it is: many small ones outlast a stalled thread.
            return cls(kind, queues, mode=Mode.WAITING, rings=RingSettings(block_bytes=1 << 18, block_timeout_ms=1))
        return cls(kind, queues, target_batch=1_024, most_pause_us=1_000, quiet_us=5_000)

    @property
    def latency_bound_us(self) -> int:
        """Return the longest wait of a frame for an otherwise idle thread, in microseconds.

        Includes the time until the kernel hands over a block (TPACKET_V3).
        """
        block_us = self.rings.block_timeout_ms * 1_000 if self.kind is PortKind.PACKET_V3 else 0
        has_pauses = self.mode is Mode.HYBRID and self.most_pause_us > self.least_pause_us
        pause_us = self.most_pause_us + TIMER_US if has_pauses else 0
        return block_us + pause_us
