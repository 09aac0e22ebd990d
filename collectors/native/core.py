"""The native core: a store, accounts, and a decoder that takes whole batches of payloads."""

from __future__ import annotations

from ipaddress import IPv4Address

import numpy as np

from collectors.counters import Count, Counters
from collectors.decode.payloads import Payloads
from collectors.decode.sources import ELSEWHERE, ReportSources
from collectors.native.accumulator import NativeStore
from collectors.native.fallback import NativeHopIndices, NativeStitcher
from collectors.native.kernel_calls import kernel_calls
from collectors.native.memory import CellMemory, address_in
from collectors.native.reception import Reception, Stop
from collectors.native.record_log import NativeRecordLog
from collectors.native.sequence import NativeAccounting
from collectors.native.state_lock import StateLock
from collectors.native.structures import NONE32, Decoder, Hop, ItemCell, Layout, Packet, Pattern
from collectors.report_reader import CoreParts
from collectors.settings import CollectorSettings
from collectors.state.builder import NetworkStateBuilder
from dataplane.clock import Clock
from dataplane.topology.values import Topology
from dataplane.wire.completion import Completion
from dataplane.wire.marking import Marking

NoticedItem = tuple[int, Completion, IPv4Address]
"""Node id, the completion reported, and the address of the last contributor."""

PACKET_ROOM = 1024
HOP_ROOM = 16_384
BITMAPS = 1 << 16
PATTERNS = 64
MOST_ITEMS = 1024
"""Items that may wait for Python, plus those of one group of payloads."""


class NativeCore:
    """Takes reports of common forms; stops at any other, which Python then reads and `fallback` takes."""

    def __init__(  # noqa: PLR0917 - what a collector has
        self,
        topology: Topology,
        settings: CollectorSettings,
        marking: Marking,
        report_udp_port: int,
        counters: Counters,
        sources: ReportSources,
    ) -> None:
        self.store = NativeStore(topology, settings.state, counters)
        self.store.topology.put_relays(self.store.native.topology, sources.relays)
        self._sources = sources
        self.accounting = NativeAccounting(settings.sequence, counters)
        self.stitcher = NativeStitcher(topology, settings.state, counters, self.store)
        self.indices = NativeHopIndices(self.store)
        self.log = NativeRecordLog(self.store, counters)
        self._counters = counters
        self.last_refusal: str | None = None
        """Last report from a source other than its switch's."""
        self._calls = kernel_calls()
        self._kept = [
            CellMemory(Layout, BITMAPS),
            CellMemory(Pattern, PATTERNS),
            CellMemory(Packet, PACKET_ROOM),
            CellMemory(Hop, HOP_ROOM),
        ]
        layouts, patterns, packets, hops = (memory.pointer for memory in self._kept)
        self._cells = CellMemory(ItemCell, MOST_ITEMS + 1 + PACKET_ROOM)
        self._item_type = np.dtype(ItemCell)
        self._items: list[NoticedItem] = []
        self._decoder = Decoder(
            layouts=layouts,
            patterns=patterns,
            pattern_mask=PATTERNS - 1,
            packets=packets,
            hops=hops,
            packet_room=PACKET_ROOM,
            hop_room=HOP_ROOM,
            items=self._cells.pointer,
            most_items=MOST_ITEMS,
            most_drops=settings.state.drops_per_report,
            udp_port=NONE32 if marking.udp_port is None else marking.udp_port,
            # No DSCP has more than six bits.
            dscp=0xFFFF if marking.dscp is None else marking.dscp,
            dscp_mask=0xFFFF if marking.dscp is None else marking.dscp_mask,
            report_port=report_udp_port,
            by_port_only=int(marking.probe_marker is not None),
            tunnel_port=NONE32 if marking.vxlan_gpe_port is None else marking.vxlan_gpe_port,
            tunnel_port2=NONE32 if marking.geneve_port is None else marking.geneve_port,
        )

        # Looked up once: in a batch of few reports, the lookups would cost as much as the reports.
        self._batch = self.store.native.batch
        self._checks_sources = sources.are_checked
        self._taking = self.store.native.address, self.accounting.native.address, self._decoder.address

    def take(
        self,
        payloads: Payloads,
        first: int,
        now_ns: int,
        *,
        skip_others: bool = False,
        leave_drops: bool = False,
        most: int = 1 << 31,
    ) -> int:
        """Take up to `most` payloads from `first` on; return the one after them, or the one that Python has to read.

        It need not take any if others are skipped: only their numbers are accounted. Drops can be
        left to it, which makes records of them.
        """
        decoder, batch = self._decoder, self._batch
        decoder.leaves_drops, batch.skips_others = leave_drops, skip_others
        self.store.begin_batch(now_ns)
        addresses = payloads.addresses if self._checks_sources else None
        batch.sources = 0 if addresses is None else address_in(addresses)
        wrong = self._counters[Count.WRONG_SOURCE]
        memory = address_in(payloads.data), address_in(payloads.places), address_in(payloads.lengths)
        done, count, goes_on = first, min(len(payloads), first + most), True
        while goes_on:
            done = self._calls.take_reports(*self._taking, *memory, done, count)
            items = decoder.item_count
            goes_on = items > MOST_ITEMS
            if items:
                self._note_items()
        self._count()
        if self._counters[Count.WRONG_SOURCE] != wrong:
            row = self.store.native.counts.refused_row
            address = payloads.address(row) or ELSEWHERE
            self.last_refusal = self._sources.explain(payloads.payload(row), address, payloads.source(row))
        return done

    def share(self, reception: Reception, lock: StateLock) -> None:
        """Prepare a socket's receive loop to write to this core's state, which has a lock."""
        reception.share(lock, checks_sources=self._checks_sources)

    def plan(self, reception: Reception, *, skip_others: bool, leave_drops: bool) -> None:
        """Set what `receive` skips and leaves to Python, as `take` does, and whether it leaves the next payload.

        Under the state's lock; it may be receiving.
        """
        self._decoder.leaves_drops = leave_drops
        reception.state.skips_others = skip_others
        reception.set_clocks()

    def receive(self, reception: Reception, until_ns: int, *, waits: bool) -> Stop:
        """Receive from a socket until a time of the monotonic clock; acquires the state's lock itself.

        Call `settle` afterwards, and as often as counters should be up to date.
        """
        store, accounts, decoder = self._taking
        address = reception.state.address
        return Stop(self._calls.receive_reports(address, store, accounts, decoder, until_ns, waits))

    def settle(self, reception: Reception) -> None:
        """Update the counters, items and last refusal after reception; under the state's lock."""
        if self._decoder.item_count:
            self._note_items()
        self._count()
        refused = reception.take_refused()
        if refused is not None:
            self.last_refusal = self._sources.explain(refused.head, refused.address or ELSEWHERE, refused.source)

    def _count(self) -> None:
        self.store.count()
        self.stitcher.count()
        self.accounting.count()

    def take_items(self) -> list[NoticedItem]:
        """Return the items that were reported since the last call, in their order."""
        items, self._items = self._items, []
        return items

    def _note_items(self) -> None:
        self._items += map(_noticed, self._cells.rows(self._item_type)[: self._decoder.item_count].tolist())
        self._decoder.item_count = 0


def native_parts(
    core: NativeCore, topology: Topology, clock: Clock, settings: CollectorSettings, counters: Counters
) -> CoreParts:
    """Return accounts, indices and state over native memory, for what Python reads."""
    state = NetworkStateBuilder(topology, clock, settings.state, counters, core.store, core.stitcher)
    return CoreParts(core.accounting, core.indices, state, core.log)


def _noticed(cell: tuple[int, int, int, int, int, int]) -> NoticedItem:
    node_id, child, about, item, wait_us, counts = cell
    completion = Completion(
        about >> 16, item, about >> 8 & 0xFF, wait_us, counts >> 16, counts & 0xFFFF, leaf=about & 0x80 != 0
    )
    return node_id, completion, IPv4Address(child)
