"""A packet manager's counters, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dataplane.nic.manager.consumer import ConsumerReading
from dataplane.nic.manager.producer import ProducerReading


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group: its members' names, and packets that arrived while it had none."""

    name: str
    consumers: tuple[str, ...]
    no_consumer: int


@dataclass(frozen=True, slots=True)
class PastReading:
    """The summed counters, in packets, of consumers and producers that have left and hold nothing any more."""

    handed_out: int = 0
    given_back: int = 0
    consumer_drops: Mapping[str, int] = field(default_factory=dict)
    queued: int = 0
    sent: int = 0
    producer_drops: Mapping[str, int] = field(default_factory=dict)

    def with_consumer(self, reading: ConsumerReading) -> PastReading:
        """Add a consumer's counters."""
        drops = Counter(self.consumer_drops)
        for queue in reading.queues:
            drops.update(queue.drops)
        handed_out = self.handed_out + reading.total("handed_out")
        given_back = self.given_back + reading.total("given_back")
        return replace(self, handed_out=handed_out, given_back=given_back, consumer_drops=dict(drops))

    def with_producer(self, reading: ProducerReading) -> PastReading:
        """Add a producer's counters."""
        drops = Counter(self.producer_drops)
        drops.update(reading.drops)
        queued, sent = self.queued + reading.queued, self.sent + reading.sent
        return replace(self, queued=queued, sent=sent, producer_drops=dict(drops))


@dataclass(frozen=True, slots=True)
class ManagerReading:
    """All counters of the packet manager; `departed` holds those of consumers and producers that have left.

    `no_consumer` counts packets for groups without a consumer; other drops are the consumers'.
    """

    consumers: tuple[ConsumerReading, ...]
    producers: tuple[ProducerReading, ...]
    groups: tuple[GroupReading, ...]
    departed: PastReading
    no_consumer: int
    memory_bytes: int

    @property
    def handed_out(self) -> int:
        """Return the total number of packets handed out."""
        return self.departed.handed_out + sum(consumer.total("handed_out") for consumer in self.consumers)

    def dropped(self, reason: str) -> int:
        """Return the total number of packets dropped for a reason on their way to a consumer."""
        past = self.departed.consumer_drops.get(reason, 0)
        return past + sum(consumer.dropped(reason) for consumer in self.consumers)
