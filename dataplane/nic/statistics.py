"""A Nic's counters, as values that can be stored, compared and exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dataplane.nic.manager.consumer import QUEUE_FULL, RESERVE_SPENT
from dataplane.nic.manager.manager_reading import ManagerReading
from dataplane.nic.ports.drops import missed, not_sent
from dataplane.nic.ports.queue import PortQueue

RULE, CLOSING, NO_CONSUMER = "rule", "closing", "no_consumer"


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Counters of one queue of the device: frames, bytes without FCS.

    missed: frames that reached the device but not the driver, by reason. not_sent: frames for the device that did not
    leave, by reason. checksum_not_ready: received although the sender left the checksum to its device.
    """

    number: int
    received: int
    received_bytes: int
    missed: Mapping[str, int]
    checksum_not_ready: int
    sent: int
    sent_bytes: int
    not_sent: Mapping[str, int]

    @classmethod
    def of(cls, number: int, queue: PortQueue) -> QueueStatistics:
        """Return a queue's current counters."""
        return cls(
            number,
            queue.rx_frames,
            queue.rx_bytes,
            missed(queue),
            queue.checksum_not_ready,
            queue.tx_frames,
            queue.tx_bytes,
            not_sent(queue),
        )


@dataclass(frozen=True, slots=True)
class ThreadStatistics:
    """Counters of one driver thread.

    A frame that it received was handed out, given to a function, dropped by a rule, not given to a function because the
    Nic was closing, or not handed out for a reason that the packet manager counts: these add up, even while the thread
    runs. polls: looks at the queues. pauses: sleeps between two polls, ended by the clock. wakeups: returns from waits
    for something to happen; interrupts: those that the device ended. cpu_seconds: in user and kernel mode. batch,
    pause_us: the current frames per request, and the current pause between polls. is_waiting: it sleeps until something
    happens.
    """

    queues: tuple[int, ...]
    received: int
    received_bytes: int
    handed_out: int
    called: int
    dropped_by_rule: int
    closing: int
    not_handed_out: int
    sent: int
    polls: int
    empty_polls: int
    pauses: int
    wakeups: int
    interrupts: int
    cpu_seconds: float
    batch: int
    pause_us: float
    is_waiting: bool


@dataclass(frozen=True, slots=True)
class NicStatistics:
    """All counters of a Nic; while it runs, its parts are read at slightly different times."""

    interface: str
    queues: tuple[QueueStatistics, ...]
    threads: tuple[ThreadStatistics, ...]
    manager: ManagerReading

    @property
    def received(self) -> int:
        """Return frames that driver threads received."""
        return sum(thread.received for thread in self.threads)

    @property
    def received_bytes(self) -> int:
        """Return their bytes."""
        return sum(thread.received_bytes for thread in self.threads)

    @property
    def handed_out(self) -> int:
        """Return frames that were handed to consumers."""
        return sum(thread.handed_out for thread in self.threads)

    @property
    def called(self) -> int:
        """Return frames that were given to functions."""
        return sum(thread.called for thread in self.threads)

    @property
    def dropped(self) -> dict[str, int]:
        """Return frames that were received and dropped, by reason."""
        return {
            RULE: sum(thread.dropped_by_rule for thread in self.threads),
            CLOSING: sum(thread.closing for thread in self.threads),
            NO_CONSUMER: self.manager.no_consumer,
            RESERVE_SPENT: self.manager.dropped(RESERVE_SPENT),
            QUEUE_FULL: self.manager.dropped(QUEUE_FULL),
        }

    @property
    def missed(self) -> dict[str, int]:
        """Return frames that reached the device but not the driver, by reason."""
        return _sum_by_reason([queue.missed for queue in self.queues])

    @property
    def sent(self) -> int:
        """Return frames that the device accepted for sending."""
        return sum(queue.sent for queue in self.queues)

    @property
    def sent_bytes(self) -> int:
        """Return their bytes."""
        return sum(queue.sent_bytes for queue in self.queues)

    @property
    def not_sent(self) -> dict[str, int]:
        """Return frames that the driver had for the device and that did not leave, by reason."""
        return _sum_by_reason([queue.not_sent for queue in self.queues])

    @property
    def polls(self) -> int:
        """Return how often driver threads looked at their queues."""
        return sum(thread.polls for thread in self.threads)

    @property
    def empty_polls(self) -> int:
        """Return how often they found nothing."""
        return sum(thread.empty_polls for thread in self.threads)

    @property
    def pauses(self) -> int:
        """Return how often they slept between two polls."""
        return sum(thread.pauses for thread in self.threads)

    @property
    def wakeups(self) -> int:
        """Return how often they were woken from waiting."""
        return sum(thread.wakeups for thread in self.threads)

    @property
    def interrupts(self) -> int:
        """Return how often the device woke them."""
        return sum(thread.interrupts for thread in self.threads)

    @property
    def cpu_seconds(self) -> float:
        """Return their CPU time, in user and kernel mode."""
        return sum(thread.cpu_seconds for thread in self.threads)


def _sum_by_reason(counted: list[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in counted:
        total.update(counts)
    return dict(total)
