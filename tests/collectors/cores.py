"""The same tests over the reference and over the native core."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collectors.collector import Collector
from collectors.counters import Counters
from collectors.decode.payloads import payloads_of
from collectors.decode.sequence import Accounting
from collectors.native.sequence import NativeAccounting
from collectors.reference.accumulator import PlainStore
from collectors.reference.sequence import PlainAccounting
from collectors.settings import Core, SequenceSettings, StateSettings
from collectors.state.accumulator import Store
from dataplane.topology.values import Topology

StoreFactory = Callable[[Topology, StateSettings, Counters], Store]
AccountingFactory = Callable[[SequenceSettings, Counters], Accounting]


def plain_store(topology: Topology, settings: StateSettings, counters: Counters) -> Store:
    return PlainStore(topology, settings, counters)


every_accounting = pytest.mark.parametrize(
    "make_accounting", [PlainAccounting, NativeAccounting], ids=["reference", "native"]
)
every_core = pytest.mark.parametrize("core", list(Core))


def receive_together(collector: Collector, payloads: list[bytes]) -> None:
    """Give a collector payloads in one batch."""
    collector.receive_many(payloads_of(payloads))
