"""A topology as kernels look things up in it: switches by node id, links by port, hosts by address."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.native.memory import CellMemory
from collectors.native.structures import NONE32, NONE64, Fabric, LinkCell
from dataplane.fabric.topology import Topology
from dataplane.native import u32, u64

HASH = 0x9E37_79B9_7F4A_7C15
_SECOND = 0xD6E8_FEB8_6659_FD93
_WORD = (1 << 64) - 1


def address_words(address: IPv4Address | IPv6Address) -> tuple[int, int]:
    """Return the high and the low word of an address."""
    return int(address) >> 64, int(address) & _WORD


class TopologyTables:
    """What of the fabric's memory never changes; it keeps that memory alive."""

    def __init__(self, topology: Topology, fabric: Fabric) -> None:
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
        self._put_pairs(fabric)
        self._put_hosts(topology, fabric)

    def _cells(self, kind: Any, count: int, filled_with: int | None = None) -> CellMemory:  # noqa: ANN401 - u32 or so
        memory = CellMemory(kind, count)
        if filled_with is not None:
            memory.rows("u1")[:] = filled_with
        self._kept.append(memory)
        return memory

    def _put_nodes(self, topology: Topology, fabric: Fabric) -> None:
        size = _table_size(len(topology.switches))
        ids, numbers = self._cells(u32, size), self._cells(u32, size, 0xFF)
        for number, node in enumerate(topology.switches):
            place = _free(numbers.rows("u4"), node.node_id * HASH >> 32, NONE32)
            ids.rows("u4")[place], numbers.rows("u4")[place] = node.node_id, number
        fabric.node_ids, fabric.node_switches, fabric.node_mask = ids.pointer, numbers.pointer, size - 1
        fabric.node_times = self._cells(u64, len(topology.switches)).pointer

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
        base, by_port = self._cells(u32, len(bases)), self._cells(u32, bases[-1], 0xFF)
        base.rows("u4")[:] = bases
        for begins, name in zip(bases, self.switches, strict=False):
            for port, number in ports[name].items():
                by_port.rows("u4")[begins + port] = number
        fabric.port_base, fabric.port_links, fabric.links = base.pointer, by_port.pointer, links.pointer

    def _put_pairs(self, fabric: Fabric) -> None:
        known = self.switch_number
        pairs = [(known[key.src], known[key.dst]) for key in self.link_keys if key.src in known and key.dst in known]
        size = _table_size(len(pairs))
        keys = self._cells(u64, size, 0xFF)
        for tail, head in pairs:
            key = tail << 32 | head
            keys.rows("u8")[_free(keys.rows("u8"), key * HASH >> 32, NONE64)] = key
        fabric.pair_keys, fabric.pair_mask = keys.pointer, size - 1

    def _put_hosts(self, topology: Topology, fabric: Fabric) -> None:
        size = _table_size(len(topology.host_by_address))
        keys, numbers = self._cells(u64, 3 * size), self._cells(u32, size, 0xFF)
        host_number = {name: number for number, name in enumerate(self.hosts)}
        for address, host in topology.host_by_address.items():
            high, low = address_words(address)
            hashed = (low ^ high * _SECOND & _WORD) * HASH >> 32
            place = _free(numbers.rows("u4"), hashed, NONE32)
            keys.rows("u8")[3 * place : 3 * place + 3] = address.version, high, low
            numbers.rows("u4")[place] = host_number[host.name]
        edges = self._cells(u32, len(self.hosts), 0xFF)
        for number, name in enumerate(self.hosts):
            edge = topology.attachment.get(name)
            if edge is not None and edge.node in self.switch_number:
                edges.rows("u4")[number] = self.switch_number[edge.node]
        fabric.host_keys, fabric.host_numbers, fabric.host_mask = keys.pointer, numbers.pointer, size - 1
        fabric.host_switches = edges.pointer


def _table_size(count: int) -> int:
    """Return a power of two that leaves half of the places free."""
    return 1 << max(2 * count, 2).bit_length()


def _free(table: NDArray[np.unsignedinteger[Any]], hashed: int, empty: int) -> int:
    """Return the first free place of a table from a hash on."""
    place = (hashed & 0xFFFF_FFFF) % len(table)
    while table[place] != empty:
        place = (place + 1) % len(table)
    return place
