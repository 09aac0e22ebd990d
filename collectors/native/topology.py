"""A topology as kernels look things up in it: switches by node id, links by port, hosts by address."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np

from collectors.native.memory import CellMemory
from collectors.native.structures import NONE32, NONE64, Fabric, Joins, LinkCell, LinkEnd, SwitchClockCell
from dataplane.native import Array, u32, u64
from dataplane.topology.values import LinkKey, Topology

HASH = 0x9E37_79B9_7F4A_7C15
_SECOND = 0xD6E8_FEB8_6659_FD93
_WORD = (1 << 64) - 1


def address_words(address: IPv4Address | IPv6Address) -> tuple[int, int]:
    """Return the high and the low word of an address."""
    return int(address) >> 64, int(address) & _WORD


class TopologyTables:
    """What of the fabric's memory never changes; it keeps that memory alive."""

    def __init__(self, topology: Topology, fabric: Fabric, joins: Joins) -> None:
        self.switches: Sequence[str] = [node.name for node in topology.switches]
        self.hosts: Sequence[str] = [node.name for node in topology.hosts]
        self.switch_number = {name: number for number, name in enumerate(self.switches)}
        self.switch_by_id = {node.node_id: number for number, node in enumerate(topology.switches)}
        self.link_keys = list(topology.directed_links)
        self.link_number = {key: number for number, key in enumerate(self.link_keys)}
        self._kept: list[CellMemory] = []
        fabric.synchronised = int(topology.synchronised_clocks)
        fabric.link_count = len(self.link_keys)
        self._put_nodes(topology, fabric)
        self._put_links(topology, fabric)
        self._put_pairs(fabric, joins)
        self._put_ends(topology, joins)
        self._put_hosts(topology, fabric)

    def _cells(self, kind: Any, count: int) -> CellMemory:  # noqa: ANN401 - u32 or so
        self._kept.append(CellMemory(kind, count))
        return self._kept[-1]

    def _table(self, kind: Any, numbers: Sequence[int]) -> Array[int]:  # noqa: ANN401 - u32 or u64
        memory = self._cells(kind, len(numbers))
        if numbers:
            memory.rows(f"u{memory.nbytes // len(numbers)}")[:] = numbers
        return memory.pointer

    def _put_nodes(self, topology: Topology, fabric: Fabric) -> None:
        size = _table_size(len(topology.switches))
        ids, numbers = [0] * size, [NONE32] * size
        for number, node in enumerate(topology.switches):
            place = _free(numbers, node.node_id * HASH >> 32, NONE32)
            ids[place], numbers[place] = node.node_id, number
        fabric.node_ids, fabric.node_switches, fabric.node_mask = (
            self._table(u32, ids),
            self._table(u32, numbers),
            size - 1,
        )
        fabric.switch_clocks = self._cells(SwitchClockCell, len(topology.switches)).pointer

    def _put_links(self, topology: Topology, fabric: Fabric) -> None:
        ports: dict[str, dict[int, int]] = {name: {} for name in self.switches}
        links = self._cells(LinkCell, len(self.link_keys))
        for number, link in enumerate(topology.directed_links.values()):
            cell = LinkCell.from_address(links.pointer.address + number * 16)
            cell.delay_ns, cell.head_switch = link.delay_ns, self.switch_number.get(link.head.node, NONE32)
            if link.tail.node in ports:
                ports[link.tail.node][link.tail.port] = number
        bases = [0]
        for name in self.switches:
            bases.append(bases[-1] + max(ports[name], default=-1) + 1)
        by_port = [NONE32] * bases[-1]
        for begins, name in zip(bases, self.switches, strict=False):
            for port, number in ports[name].items():
                by_port[begins + port] = number
        fabric.port_base, fabric.port_links = self._table(u32, bases), self._table(u32, by_port)
        fabric.links = links.pointer

    def _put_pairs(self, fabric: Fabric, joins: Joins) -> None:
        known = self.switch_number
        pairs = [(known[key.src], known[key.dst]) for key in self.link_keys if key.src in known and key.dst in known]
        size = _table_size(len(pairs))
        keys, numbers = [NONE64] * size, [NONE32] * size
        for tail, head in pairs:
            key = tail << 32 | head
            place = _free(keys, key * HASH >> 32, NONE64)
            keys[place], numbers[place] = key, self.link_number[LinkKey(self.switches[tail], self.switches[head])]
        fabric.pair_keys, fabric.pair_mask = self._table(u64, keys), size - 1
        joins.pair_links = self._table(u32, numbers)

    def _put_ends(self, topology: Topology, joins: Joins) -> None:
        ends = self._cells(LinkEnd, len(self.link_keys))
        rows = ends.rows(np.dtype(LinkEnd))
        for number, (key, link) in enumerate(topology.directed_links.items()):
            rows[number] = link.head.port, self.link_number[LinkKey(key.dst, key.src)]
        joins.ends = ends.pointer
        edges = [topology.attachment.get(name) for name in self.hosts]
        keys = [
            None if edge is None else LinkKey(edge.node, name) for edge, name in zip(edges, self.hosts, strict=True)
        ]
        joins.host_links = self._table(u32, [NONE32 if key is None else self.link_number[key] for key in keys])

    def _put_hosts(self, topology: Topology, fabric: Fabric) -> None:
        size = _table_size(len(topology.host_by_address))
        keys, numbers = [0] * (3 * size), [NONE32] * size
        host_number = {name: number for number, name in enumerate(self.hosts)}
        for address, host in topology.host_by_address.items():
            high, low = address_words(address)
            hashed = (low ^ high * _SECOND & _WORD) * HASH >> 32
            place = _free(numbers, hashed, NONE32)
            keys[3 * place : 3 * place + 3] = address.version, high, low
            numbers[place] = host_number[host.name]
        fabric.host_keys, fabric.host_numbers = self._table(u64, keys), self._table(u32, numbers)
        fabric.host_mask = size - 1
        edges = [topology.attachment.get(name) for name in self.hosts]
        switches = [NONE32 if edge is None else self.switch_number.get(edge.node, NONE32) for edge in edges]
        fabric.host_switches = self._table(u32, switches)


def _table_size(count: int) -> int:
    """Return a power of two that leaves half of the places free."""
    return 1 << max(2 * count, 2).bit_length()


def _free(table: Sequence[int], hashed: int, empty: int) -> int:
    """Return the first free place of a table from a hash on."""
    place = (hashed & 0xFFFF_FFFF) % len(table)
    while table[place] != empty:
        place = (place + 1) % len(table)
    return place
