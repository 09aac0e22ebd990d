"""Entries of a switch's tables as text, whatever program it runs."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, TypeAlias

from finsy import P4CounterData, P4TableEntry
from finsy.p4schema import P4Table

from controller.network.p4runtime.browsing import SwitchBrowser
from dataplane.topology.addressing import format_mac

Row: TypeAlias = tuple[str | dict[str, str], int | None, str | None, int | None, int | None]
"""Match ("default" of the default entry), priority, action, and packets and bytes of a direct counter."""

_HEX: Final = re.compile(r"0x[0-9a-f]+")
_MAC_BITS: Final = 48
_ADDRESSES: Final = {32: IPv4Address, 128: IPv6Address}


async def entries_of(browser: SwitchBrowser, name: str) -> list[Row]:
    """Return the entries of one of the program's tables, the default last; raise SessionError."""
    table = browser.schema.tables[name]
    counts = P4CounterData() if table.direct_counter is not None else None
    wanted = [P4TableEntry(name, counter_data=counts)]
    if table.const_default_action is None and table.action_profile is None:
        wanted.append(P4TableEntry(name, is_default_action=True, counter_data=counts))
    return [_row(entry, table, browser) for entry in await browser.entities(*wanted)]


def _row(entry: Any, table: P4Table, browser: SwitchBrowser) -> Row:  # noqa: ANN401 - finsy's entry
    match: str | dict[str, str] = "default" if entry.is_default_action else _match(entry, table)
    action = None
    if entry.action is not None:
        schema = browser.schema if type(entry.action).__name__ == "P4TableAction" else table
        action = entry.action.format_str(schema)
    counted = entry.counter_data
    counts = (None, None) if counted is None else (counted.packet_count, counted.byte_count)
    return match, entry.priority or None, action, *counts


def _match(entry: Any, table: P4Table) -> dict[str, str]:  # noqa: ANN401 - finsy's entry
    """Return keys with their values, addresses in the usual notation."""
    if entry.match is None:
        return {}
    widths = {field.alias: field.bitwidth for field in table.match_fields}
    return {name: _readable(name, widths[name], text) for name, text in entry.match.format_dict(table).items()}


def _readable(name: str, bits: int, text: str) -> str:
    if bits == _MAC_BITS:
        return _HEX.sub(lambda number: format_mac(int(number[0], 16)), text)
    if "addr" in name and bits in _ADDRESSES:
        return _HEX.sub(lambda number: str(_ADDRESSES[bits](int(number[0], 16))), text)
    return text
