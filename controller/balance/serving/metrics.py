"""Prometheus metrics of the management service."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.apiserver.resources import UnitPool


class Metrics:
    """Counters in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of_pool, of_holder = ["pool"], ["pool", "holder"]
        self.moves = Counter(
            "millrace_balance_moved_units",
            "Units that were moved, or asked back.",
            of_pool,
            registry=self.registry,
        )
        self.reports = Counter(
            "millrace_balance_reports", "Reports of holders that were looked at.", of_pool, registry=self.registry
        )
        self.conflicts = Counter(
            "millrace_balance_conflicts",
            "Shares that others, or reports, had changed first: decided again.",
            registry=self.registry,
        )
        self.failures = Counter(
            "millrace_balance_failures", "Writes that failed for another reason.", registry=self.registry
        )
        self.pools = Gauge("millrace_balance_pools", "Pools that are known.", registry=self.registry)
        self.silent = Gauge(
            "millrace_balance_silent_holders", "Holders that do not report.", of_pool, registry=self.registry
        )
        self.capacity = Gauge(
            "millrace_balance_capacity_units",
            "Units that there are to share out.",
            of_pool,
            registry=self.registry,
        )
        self.price = Gauge(
            "millrace_balance_shadow_price",
            "What one more unit would be worth.",
            of_pool,
            registry=self.registry,
        )
        self.units = Gauge("millrace_balance_units", "Units that a holder has.", of_holder, registry=self.registry)
        self.error = Gauge(
            "millrace_balance_error", "Bus less load, of the last report.", of_holder, registry=self.registry
        )
        self.output = Gauge("millrace_balance_output", "The controller's output u.", of_holder, registry=self.registry)
        self.seconds = Histogram(
            "millrace_balance_round_seconds",
            "Time that a round of decisions takes, without its writes.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=self.registry,
        )

    def show(self, pools: tuple[UnitPool, ...], silent: dict[str, int], capacity: dict[str, int]) -> None:
        """Set the gauges to the present state; remove those of deleted pools and holders."""
        for gauge in (self.silent, self.capacity, self.price, self.units, self.error, self.output):
            gauge.clear()
        self.pools.set(len(pools))
        for pool in pools:
            name = pool.metadata.name
            self.silent.labels(name).set(silent.get(name, 0))
            self.capacity.labels(name).set(capacity.get(name, 0))
            self.price.labels(name).set(pool.status.shadow_price or 0.0)
            for share in pool.shares:
                self.units.labels(name, share.holder).set(share.units)
            for made in pool.status.control:
                if made.error is not None:
                    self.error.labels(name, made.holder).set(made.error)
                if made.output is not None:
                    self.output.labels(name, made.holder).set(made.output)
