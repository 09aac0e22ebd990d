"""The parts of the reference core, all in plain Python."""

from __future__ import annotations

from collectors.counters import Counters
from collectors.reference.builder import PlainStateBuilder
from collectors.reference.hop_indices import PlainHopIndices
from collectors.reference.record_log import PlainRecordLog
from collectors.reference.sequence import PlainAccounting
from collectors.report_reader import CoreParts
from collectors.settings import CollectorSettings
from dataplane.clock import Clock
from dataplane.topology.values import Topology


def reference_parts(topology: Topology, clock: Clock, settings: CollectorSettings, counters: Counters) -> CoreParts:
    """Return accounts, indices and state in plain Python."""
    return CoreParts(
        PlainAccounting(settings.sequence, counters),
        PlainHopIndices(topology, counters, settings.state.max_flows),
        PlainStateBuilder(topology, clock, settings.state, counters),
        PlainRecordLog(counters),
    )
