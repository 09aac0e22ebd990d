"""Production path for reports that the native decoder cannot read: Python decodes them into native memory.

Natively decoded hops go to the same memory, so that the hops of one packet find each other, whichever decoder read
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectors.counters import Count, Counters
from collectors.decode.reports import MeasuredPacket
from collectors.decode.samples import Fate, Outcome
from collectors.decode.stitch import HOPS_EACH, Stitched, Stitcher
from collectors.native.accumulator import NativeStore, half, key_words, word
from collectors.native.kernel_calls import kernel_calls
from collectors.native.memory import CellMemory
from collectors.native.structures import MOST_HOPS, FateCell, PendingCell, PendingHop
from collectors.native.tables import PendingTable
from collectors.settings import StateSettings
from collectors.state.loss import slot_of, slots_kept
from collectors.values import FlowKey, HopRecord
from dataplane.native import u32, u64
from dataplane.topology.values import Topology

_OUTCOMES = (
    ("passed", Outcome.PASSED),
    ("missing", Outcome.MISSING),
    ("unannounced", Outcome.UNANNOUNCED),
    ("dropped", Outcome.DROPPED),
    ("unmarked", Outcome.UNMARKED),
)


class NativeStitcher(Stitcher):
    """Joins waiting hops in native memory; the samples, paths and fates found are stored at once."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters, store: NativeStore) -> None:
        super().__init__(topology, settings, counters)
        self._counters = counters
        self._store = store
        self._calls = kernel_calls()
        self._kept: list[CellMemory] = []
        self._tables = store.native
        self._pending = pending = self._tables.pending
        packets, flows = settings.max_pending_packets, settings.max_flows
        self._put_table(pending.singles, packets, HOPS_EACH)
        self._put_table(pending.parts, packets, HOPS_EACH)
        self._put_table(pending.sources, flows)
        self._put_table(pending.flows, flows, HOPS_EACH)
        self._put_table(pending.splits, flows)
        pending.wait_ns = settings.longest_wait_ns
        most = max(MOST_HOPS, len(topology.switches))
        self._part = self._cells(PendingHop, MOST_HOPS)
        pending.part = self._part.pointer
        pending.path, pending.switches = self._cells(u64, most).pointer, self._cells(u32, most).pointer
        self._put_fates(settings)

    def _cells(self, kind: Any, count: int) -> CellMemory:  # noqa: ANN401 - u32 or a struct
        self._kept.append(CellMemory(kind, count))
        return self._kept[-1]

    def _put_table(self, table: PendingTable, most: int, hops_each: int = 0) -> None:
        """Make room in a table for `most` packets or flows, and for one more and the hops of its report."""
        places = 1 << (2 * most + 1).bit_length()
        hops = most * hops_each
        table.cells = self._cells(PendingCell, most + 1).pointer
        table.hops = self._cells(PendingHop, hops + MOST_HOPS if hops else 1).pointer
        table.index, table.mask = self._cells(u64, places).pointer, places - 1
        table.most, table.most_hops = most, hops

    def _put_fates(self, settings: StateSettings) -> None:
        links, losses = len(self._store.topology.link_keys), self._tables.losses
        ring = 1 << slots_kept(settings.window_ns, settings.longest_wait_ns).bit_length()
        self._fates, self._noted = self._cells(FateCell, links * ring), self._cells(u32, links * ring)
        losses.fates, losses.noted = self._fates.pointer, self._noted.pointer
        self._lost_early = self._cells(u32, links)
        losses.lost_early = self._lost_early.pointer
        self._reporting = self._cells(u32, len(self._store.topology.switches))
        losses.reporting = self._reporting.pointer
        losses.ring, losses.slot_ns = ring, slot_of(settings.window_ns)

    def count(self) -> None:
        """Add what the kernels have counted to the counters."""
        if self._pending.incomplete:
            self._counters[Count.INCOMPLETE_PACKETS] += self._pending.incomplete
            self._pending.incomplete = 0

    def take_fates(self) -> list[Fate]:
        """Return the fates of packets on links since the last call."""
        cells, fates = self._fates.rows(np.dtype(FateCell)), self._take_lost_early()
        for index in self._noted.rows(np.uint32)[: self._tables.losses.noted_count].tolist():
            cell = cells[index]
            link = self._store.topology.link_keys[index // self._tables.losses.ring]
            at_ns = (int(cell["slot"]) - 1) * self._tables.losses.slot_ns
            fates += [Fate(link, outcome, at_ns, int(cell[name])) for name, outcome in _OUTCOMES if cell[name]]
            # A fate without packets marks the link as reported on.
            fates += [Fate(link, Outcome.DROPPED, at_ns, 0)] if cell["others"] else []
            for name in (*(name for name, _ in _OUTCOMES), "others", "noted"):
                cell[name] = 0
        self._tables.losses.noted_count = 0
        return fates

    def _take_lost_early(self) -> list[Fate]:
        """Return the losses of parts of time that the ring has forgotten: too old for a share, but they count."""
        lost, links = self._lost_early.rows(np.uint32), self._store.topology.link_keys
        fates = [Fate(links[number], Outcome.MISSING, 0, int(lost[number])) for number in np.flatnonzero(lost).tolist()]
        lost[:] = 0
        return fates

    def reporting(self) -> list[str]:
        """Return the switches that have reported drops that `stitch` was not given."""
        switches = self._store.topology.switches
        return [
            switches[number] for number in np.flatnonzero(self._reporting.rows(np.uint32)[: len(switches)]).tolist()
        ]

    def _take_single(self, record: HopRecord, out: Stitched) -> None:
        del out
        self._take([record])
        self._calls.take_single_record(self._store.native, key_words(record.flow))
        self._count_all()

    def _take_part(self, hops: list[HopRecord], out: Stitched) -> None:
        del out
        self._take(hops)
        self._calls.take_part_record(self._store.native, key_words(hops[0].flow), len(hops))
        self._count_all()

    def _note_split(self, flow: FlowKey) -> None:
        self._calls.note_split(self._store.native, key_words(flow))

    def _is_split(self, flow: FlowKey) -> bool:
        return bool(self._calls.is_split(self._store.native, key_words(flow)))

    def _count_all(self) -> None:
        self._store.count()
        self.count()

    def _take(self, hops: list[HopRecord]) -> None:
        """Put records where the kernels look for them."""
        self._store.begin_batch(hops[0].received_ns)
        for index, hop in enumerate(hops):
            row = self._part.pointer[index]
            row.arrived_ns, row.left_ns = word(hop.ingress_timestamp_ns), word(hop.egress_timestamp_ns)
            row.node_id, row.ingress, row.egress = hop.node_id, half(hop.ingress_port), half(hop.egress_port)
            row.latency_ns, row.tx_bytes = half(hop.hop_latency_ns), half(hop.tx_bytes_per_window)
            row.queue, row.buffer = half(hop.queue_occupancy_frames), half(hop.buffer_occupancy_frames)
            row.received_ns, row.identity, row.kind = hop.received_ns, hop.packet_id, hop.kind
            row.position, row.count = hop.hop_index, half(hop.hop_count)
            row.ends = hop.hop_count == hop.hop_index + 1


class NativeHopIndices:
    """The source's remaining hop counts in native memory."""

    def __init__(self, store: NativeStore) -> None:
        self._store = store
        self._calls = kernel_calls()

    def index_of(self, packet: MeasuredPacket) -> int:
        """Return the index of a packet's only hop."""
        node_id = packet.hops[0].node_id
        remaining = packet.remaining_hops or 0
        index = self._calls.find_hop_index(self._store.native, key_words(packet.flow), remaining, half(node_id))
        self._store.count()
        return index
