"""Prometheus metrics of a pool: its status at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.memory.pool.service import PoolStatus
from dataplane.clock import NS_PER_S

_BITS = 8


class Metrics(Collector):
    """Families of a pool's status; labels are names of hosts and tiers from settings."""

    def __init__(self, status: Callable[[], PoolStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the pool's current state."""
        status = self._status()
        up = GaugeMetricFamily("millrace_memory_host_up", "1 while a host belongs to the pool.", labels=("host",))
        labels = ("host", "tier", "kind")
        sizes = GaugeMetricFamily("millrace_memory_tier_bytes", "Size of a tier.", labels=(*labels, "of"))
        times = GaugeMetricFamily("millrace_memory_tier_seconds", "Time of 4 KiB.", labels=(*labels, "of"))
        rates = GaugeMetricFamily(
            "millrace_memory_tier_bytes_per_second", "Rate of blocks, recently.", labels=(*labels, "of")
        )
        for host in status.hosts:
            name = host.description.host
            up.add_metric((name,), float(host.is_up))
            for tier in host.description.tiers:
                of_tier = (name, tier.name, tier.kind)
                sizes.add_metric((*of_tier, "capacity"), tier.capacity_bytes)
                sizes.add_metric((*of_tier, "used"), tier.used_bytes)
                for way in ("read", "write"):
                    times.add_metric((*of_tier, way), getattr(tier, f"{way}_ns") / NS_PER_S)
                    rates.add_metric((*of_tier, way), getattr(tier, f"{way}_bps") / _BITS)
        yield from (up, sizes, times, rates)
        blocks = GaugeMetricFamily("millrace_memory_blocks", "Blocks by state.", labels=("state",))
        for state in ("cached", "dirty", "lost"):
            blocks.add_metric((state,), getattr(status, state))
        blocks.add_metric(("all",), status.blocks)
        requests = CounterMetricFamily(
            "millrace_memory_requests", "Requests by their host, and those that did not run.", labels=("by",)
        )
        for by, count in status.counts.items():
            requests.add_metric((by,), count)
        yield from (blocks, requests)

    def describe(self) -> Iterable[Metric]:
        """Describe nothing before the first scrape."""
        return ()
