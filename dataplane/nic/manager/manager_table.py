"""The packet manager's table as a driver thread reads it: built once, never changed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from dataplane.native import array_at, u64
from dataplane.nic.buffers.software_queue import NO_MEMBER, Group, GroupState, ManagerTable, Member
from dataplane.nic.manager.balance import Balance


@dataclass(frozen=True, slots=True)
class Membership:
    """A group as one driver thread sees it: addresses and serial numbers of software queues, in the order of joining.

    `anchor` is the serial number of the member that was most recently the only one.
    """

    queues: tuple[tuple[int, int], ...]
    balance: Balance
    anchor: int | None
    state: GroupState


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table, and everything that it points to."""

    table: ManagerTable
    owned: tuple[object, ...]


def build_table(groups: Sequence[Membership], senders: Sequence[int]) -> LoadedTable:
    """Return a table of groups, by number, and the addresses of the software queues to send from."""
    rows = (Group * max(len(groups), 1))()
    owned: list[object] = [rows]
    for row, group in zip(rows, groups, strict=False):
        members = (Member * max(len(group.queues), 1))(*(Member(queue, serial) for queue, serial in group.queues))
        row.members = members
        row.count = len(group.queues)
        row.balance = group.balance
        row.anchor = _anchor(group)
        row.state = group.state
        owned += [members, group.state]
    addresses = (ctypes.c_uint64 * max(len(senders), 1))(*senders)
    owned.append(addresses)
    table = ManagerTable(group_count=len(groups), sender_count=len(senders))
    table.groups = array_at(Group, ctypes.addressof(rows))
    table.senders = array_at(u64, ctypes.addressof(addresses))
    return LoadedTable(table, tuple(owned))


def _anchor(group: Membership) -> int:
    serials = [serial for _, serial in group.queues]
    return serials.index(group.anchor) if group.anchor in serials else NO_MEMBER
