"""A topology as lookup tables for kernels: switches by node id, links by port, hosts by address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np

from collectors.native.memory import CellMemory
from collectors.native.structures import NONE32, AddressCell, LinkCell, LinkEnd
from collectors.native.tables import TopologyTable
from dataplane.native import Array, u32, u64
from dataplane.topology.addressing import report_source
from dataplane.topology.values import LinkKey, Topology

HASH = 0x9E37_79B9_7F4A_7C15
_SECOND = 0xD6E8_FEB8_6659_FD93
_WORD = (1 << 64) - 1


def address_words(address: IPv4Address | IPv6Address) -> tuple[int, int]:
    """Return the high and the low word of an address."""
    return int(address) >> 64, int(address) & _WORD


class NativeTopology:
    """Fills the table of the topology, which never changes, and keeps its memory alive; the numbers of its nodes."""

    def __init__(self, topology: Topology, table: TopologyTable) -> None:
        self.switches: Sequence[str] = [node.name for node in topology.switches]
        self.hosts: Sequence[str] = [node.name for node in topology.hosts]
        self.switch_number = {name: number for number, name in enumerate(self.switches)}
        self.switch_by_id = {node.node_id: number for number, node in enumerate(topology.switches)}
        self.link_keys = list(topology.directed_links)
        self.link_number = {key: number for number, key in enumerate(self.link_keys)}
        self._kept: list[CellMemory] = []
        table.synchronised = int(topology.synchronised_clocks)
        table.link_count = len(self.link_keys)
        switches = ((node_id * HASH, node_id, number) for node_id, number in self.switch_by_id.items())
        table.switch_index, table.switch_mask = self._index(len(self.switches), switches)
        table.report_sources = self._table(u32, [int(report_source(node)) for node in topology.switches])
        self._put_links(topology, table)
        self._put_pairs(table)
        self._put_ends(topology, table)
        self._put_addresses(topology, table)

    def put_relays(self, table: TopologyTable, relays: Iterable[int]) -> None:
        """Note from which addresses reports of any switch may come."""
        addresses = list(relays)
        table.relays, table.relay_count = self._table(u32, addresses), len(addresses)

    def _cells(self, kind: Any, count: int) -> CellMemory:  # noqa: ANN401 - u32 or so
        self._kept.append(CellMemory(kind, count))
        return self._kept[-1]

    def _table(self, kind: Any, numbers: Sequence[int]) -> Array[int]:  # noqa: ANN401 - u32 or u64
        memory = self._cells(kind, len(numbers))
        if numbers:
            memory.rows(f"u{memory.nbytes // len(numbers)}")[:] = numbers
        return memory.pointer

    def _index(self, count: int, entries: Iterable[tuple[int, int, int]]) -> tuple[Array[int], int]:
        """Return an index of hashes, tags and numbers as `dataplane.native.open_addressing` has it, and its mask."""
        size = 1 << max(2 * count, 2).bit_length()  # half of the places stay free
        index = [0] * size
        for mixed, tag, number in entries:
            slot = mixed >> 32 & size - 1
            while index[slot]:
                slot = slot + 1 & size - 1
            index[slot] = tag << 32 | number + 1
        return self._table(u64, index), size - 1

    def _put_links(self, topology: Topology, table: TopologyTable) -> None:
        ports: dict[str, dict[int, int]] = {name: {} for name in self.switches}
        links = self._cells(LinkCell, len(self.link_keys))
        for number, link in enumerate(topology.directed_links.values()):
            cell = LinkCell.from_address(links.pointer.address + number * 16)
            cell.delay_ns, cell.head_switch = link.delay_ns, self.switch_number.get(link.head.node, NONE32)
            cell.tail_switch = self.switch_number.get(link.tail.node, NONE32)
            if link.tail.node in ports:
                ports[link.tail.node][link.tail.port] = number
        bases = [0]
        for name in self.switches:
            bases.append(bases[-1] + max(ports[name], default=-1) + 1)
        by_port = [NONE32] * bases[-1]
        for begins, name in zip(bases, self.switches, strict=False):
            for port, number in ports[name].items():
                by_port[begins + port] = number
        table.port_base, table.port_links = self._table(u32, bases), self._table(u32, by_port)
        table.links = links.pointer

    def _put_pairs(self, table: TopologyTable) -> None:
        numbers, entries = self.switch_number, []
        for number, key in enumerate(self.link_keys):
            if key.src in numbers and key.dst in numbers:
                mixed = (numbers[key.src] << 32 | numbers[key.dst]) * HASH & _WORD
                entries.append((mixed, mixed >> 32, number))
        table.pair_index, table.pair_mask = self._index(len(entries), entries)

    def _put_ends(self, topology: Topology, table: TopologyTable) -> None:
        ends = self._cells(LinkEnd, len(self.link_keys))
        rows = ends.rows(np.dtype(LinkEnd))
        for number, (key, link) in enumerate(topology.directed_links.items()):
            rows[number] = link.head.port, self.link_number[LinkKey(key.dst, key.src)]
        table.link_ends = ends.pointer
        edges = [topology.attachment.get(name) for name in self.hosts]
        keys = [
            None if edge is None else LinkKey(edge.node, name) for edge, name in zip(edges, self.hosts, strict=True)
        ]
        from_switch = [-1 if key is None else self.link_number[key] for key in keys]
        to_switch = [-1 if key is None else self.link_number[LinkKey(key.dst, key.src)] for key in keys]
        # One extra entry, for unknown hosts.
        self.host_links = np.array([*to_switch, -1], np.int64), np.array([*from_switch, -1], np.int64)
        table.host_links = self._table(u32, [NONE32 if number < 0 else number for number in from_switch])
        switches = [NONE32 if edge is None else self.switch_number.get(edge.node, NONE32) for edge in edges]
        table.host_switches = self._table(u32, switches)

    def _put_addresses(self, topology: Topology, table: TopologyTable) -> None:
        host_number = {name: number for number, name in enumerate(self.hosts)}
        cells, entries = self._cells(AddressCell, len(topology.host_by_address)), []
        rows = cells.rows(np.dtype(AddressCell))
        for number, (address, host) in enumerate(topology.host_by_address.items()):
            high, low = address_words(address)
            rows[number] = address.version, high, low, host_number[host.name]
            mixed = (low ^ high * _SECOND & _WORD) * HASH & _WORD
            entries.append((mixed, mixed >> 32, number))
        table.addresses = cells.pointer
        table.address_index, table.address_mask = self._index(len(entries), entries)
