"""Prometheus metrics of Nics: millrace_nic_* with the interface, and the queue, thread, consumer or reason.

https://prometheus.io/docs/practices/naming. Label values are bounded by the device's queues, the threads, the current
consumers and producers, and the reasons that the code names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dataplane.errors import PortError
from dataplane.metrics_server import MetricsServer
from dataplane.nic.statistics import NicStatistics, QueueStatistics, ThreadStatistics

_US_PER_S = 1_000_000
Read = Callable[[], NicStatistics]
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


@dataclass(frozen=True, slots=True)
class _Number:
    """A metric with one value per labelled item."""

    name: str
    help: str
    attribute: str


_QUEUE = (
    _Number("received_packets", "Frames taken from a queue of the device.", "received"),
    _Number("received_bytes", "Bytes of these frames, without FCS.", "received_bytes"),
    _Number("sent_packets", "Frames that a queue of the device took to be sent.", "sent"),
    _Number("sent_bytes", "Bytes of these frames, without FCS.", "sent_bytes"),
)
_THREAD = (
    _Number("handed_out_packets", "Frames handed to consumers.", "handed_out"),
    _Number("called_packets", "Frames given to functions of rules.", "called"),
    _Number("polls", "Looks of a driver thread at its queues.", "polls"),
    _Number("empty_polls", "Those that found no frame.", "empty_polls"),
    _Number("pauses", "Sleeps between two polls, ended by the clock.", "pauses"),
    _Number("wakeups", "Returns from waits for something to happen.", "wakeups"),
    _Number("interrupts", "Waits that the device ended.", "interrupts"),
    _Number("cpu_seconds", "Time that a driver thread ran, in user and kernel mode.", "cpu_seconds"),
)


class NicCollector(Collector):
    """Collects what `Nic.read_statistics` of some Nics returns, at the time of each scrape."""

    def __init__(self, *reads: Read) -> None:
        self._reads = reads

    def collect(self) -> Iterable[Metric]:
        """Return all current metrics."""
        read = [each() for each in self._reads]
        yield from (_of_queues(number, read) for number in _QUEUE)
        yield from (_of_threads(number, read) for number in _THREAD)
        yield _dropped(read)
        yield _by_reason("missed_packets", "Frames that reached the device but not the driver.", "missed", read)
        yield _by_reason("not_sent_packets", "Frames that the device did not send.", "not_sent", read)
        yield from _at_present(read)
        yield from _consumers(read)
        yield from _producers(read)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"millrace_nic_{name}", text, labels=("interface", *labels))


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"millrace_nic_{name}", text, labels=("interface", *labels))


def _of_queues(number: _Number, read: Sequence[NicStatistics]) -> Metric:
    family = _counter(number.name, number.help, "queue")
    for nic, queue in _queues(read):
        family.add_metric((nic.interface, str(queue.number)), getattr(queue, number.attribute))
    return family


def _of_threads(number: _Number, read: Sequence[NicStatistics]) -> Metric:
    family = _counter(number.name, number.help, "thread")
    for nic, position, thread in _threads(read):
        family.add_metric((nic.interface, str(position)), getattr(thread, number.attribute))
    return family


def _dropped(read: Sequence[NicStatistics]) -> Metric:
    family = _counter("dropped_packets", "Frames that were received and dropped.", "reason")
    for nic in read:
        for reason, count in nic.dropped.items():
            family.add_metric((nic.interface, reason), count)
    return family


def _by_reason(name: str, text: str, attribute: str, read: Sequence[NicStatistics]) -> Metric:
    family = _counter(name, text, "queue", "reason")
    for nic, queue in _queues(read):
        for reason, count in getattr(queue, attribute).items():
            family.add_metric((nic.interface, str(queue.number), reason), count)
    return family


def _at_present(read: Sequence[NicStatistics]) -> Iterator[Metric]:
    batch = _gauge("batch_packets", "Frames that a driver thread asks a queue for at a time.", "thread")
    pause = _gauge("pause_seconds", "Pause of a driver thread between two polls.", "thread")
    for nic, number, thread in _threads(read):
        batch.add_metric((nic.interface, str(number)), thread.batch)
        pause.add_metric((nic.interface, str(number)), thread.pause_us / _US_PER_S)
    yield batch
    yield pause


def _consumers(read: Sequence[NicStatistics]) -> Iterator[Metric]:
    """Count consumers; a leaving one and a newer one of the same name count as one."""
    waiting: Counter[tuple[str, ...]] = Counter()
    lent: Counter[tuple[str, ...]] = Counter()
    dropped: Counter[tuple[str, ...]] = Counter()
    free: Counter[tuple[str, ...]] = Counter()
    for nic in read:
        for name, queue in ((consumer.name, queue) for consumer in nic.manager.consumers for queue in consumer.queues):
            waiting[nic.interface, name] += queue.waiting
            lent[nic.interface, name] += queue.lent
            dropped.update({(nic.interface, name, reason): count for reason, count in queue.drops.items()})
            free.update({(nic.interface, name, str(each.size_bytes)): each.free for each in queue.buffers})
    yield _filled(_gauge("waiting_packets", "Packets in a consumer's software queues.", "consumer"), waiting)
    yield _filled(_gauge("lent_packets", "Packets that a consumer has not given back.", "consumer"), lent)
    yield _filled(_gauge("free_buffers", "Free buffers of a consumer's reserve.", "consumer", "size_bytes"), free)
    text = "Packets that a consumer did not get, or left behind."
    yield _filled(_counter("consumer_dropped_packets", text, "consumer", "reason"), dropped)


def _producers(read: Sequence[NicStatistics]) -> Iterator[Metric]:
    """Count producers, in the same way as consumers."""
    waiting: Counter[tuple[str, ...]] = Counter()
    dropped: Counter[tuple[str, ...]] = Counter()
    for nic in read:
        for producer in nic.manager.producers:
            waiting[nic.interface, producer.name] += producer.waiting
            dropped.update({(nic.interface, producer.name, reason): count for reason, count in producer.drops.items()})
    yield _filled(_gauge("unsent_packets", "Packets in a producer's software queue.", "producer"), waiting)
    text = "Packets of a producer that were not sent."
    yield _filled(_counter("producer_dropped_packets", text, "producer", "reason"), dropped)


def _filled(family: Family, values: Mapping[tuple[str, ...], int]) -> Family:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _queues(read: Sequence[NicStatistics]) -> Iterator[tuple[NicStatistics, QueueStatistics]]:
    return ((nic, queue) for nic in read for queue in nic.queues)


def _threads(read: Sequence[NicStatistics]) -> Iterator[tuple[NicStatistics, int, ThreadStatistics]]:
    return ((nic, number, thread) for nic in read for number, thread in enumerate(nic.threads))


def metrics_text(*reads: Read) -> str:
    """Return everything in Prometheus's text format."""
    return generate_latest(_registry(reads)).decode()


def serve_metrics(port: int, *reads: Read, address: str = "127.0.0.1") -> MetricsServer:
    """Serve the metrics of Nics on this machine; `reads` are their `read_statistics`. Raises PortError."""
    try:
        return MetricsServer(_registry(reads), address, port)
    except OSError as error:
        raise PortError(f"metrics cannot be served at {address}:{port}: {error.strerror}") from error


def _registry(reads: Sequence[Read]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NicCollector(*reads))
    return registry
