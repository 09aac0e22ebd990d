"""`millrace switch show`: state of a running switch, over P4Runtime and gNMI."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from controller.apps.cli.shared.output import Cells, Format, OneFormat
from controller.apps.cli.shared.output import show as show_rows
from controller.apps.cli.state.session import Address, DeviceId, Tls, ask, tls_of
from controller.common.errors import UnservedError

if TYPE_CHECKING:
    from controller.network.p4runtime.browsing import SwitchBrowser
    from dataplane.rpc.access.settings import TlsSettings

_COUNTS: Final = ("in-pkts", "in-octets", "in-discards", "out-pkts", "out-octets", "out-discards")
_PORTS: Final = ("port", "device", "admin", "oper", *_COUNTS, "segments")

switch_show = typer.Typer(add_completion=False, rich_markup_mode=None)
"""A separate command, as all other words after `millrace switch` belong to the switch."""


@dataclass(frozen=True, slots=True)
class TableFill:
    """A table, its size, and its number of entries without the default one."""

    table: str
    size: int
    entries: int


@dataclass(frozen=True, slots=True)
class CounterSum:
    """A counter: its number of nonzero cells, and their totals."""

    counter: str
    size: int
    in_use: int
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SwitchView:
    """State that a switch reports over P4Runtime. primary: its controller's election id, None without a controller."""

    program: str | None
    architecture: str
    p4runtime: str
    primary: int | None
    tables: tuple[TableFill, ...]
    counters: tuple[CounterSum, ...]


@switch_show.command()
def show(address: Address, device_id: DeviceId = None, tls: Tls = None, form: OneFormat = Format.TABLE) -> None:
    """Show a switch's program, controller, ports, tables with their occupancy, and counters."""

    async def question(browser: SwitchBrowser) -> tuple[SwitchView, tuple[Cells, ...] | None]:
        view = await _view(browser)
        try:
            return view, await _ports(address, tls_of(tls))
        except UnservedError as error:
            typer.echo(f"millrace: ports are unknown: {error}", err=True)
            return view, None

    view, ports = ask(address, device_id, tls, question)
    if form is Format.JSON:
        rows = None if ports is None else [dict(zip(_PORTS, cells, strict=True)) for cells in ports]
        typer.echo(json.dumps(asdict(view) | {"ports": rows}, indent=2))
    else:
        _show(view, ports)


async def _ports(address: str, tls: TlsSettings | None) -> tuple[Cells, ...]:
    from controller.network.gnmi.queries import read_counts, read_not_joined, read_ports  # noqa: PLC0415

    counts, reasons = await read_counts(address, tls), await read_not_joined(address, tls)
    rows = []
    for port in await read_ports(address, tls):
        counted = counts.get(port.device, {})
        state = (port.port, port.device, "up" if port.admin_up else "down", str(port.oper))
        segments = reasons.get(port.device)
        segments = "joined" if segments == "" else segments
        rows.append((*state, *(counted.get(name) for name in _COUNTS), segments))
    return tuple(rows)


async def _view(browser: SwitchBrowser) -> SwitchView:
    from finsy import P4CounterEntry, P4TableEntry  # noqa: PLC0415

    schema = browser.schema
    entries = await browser.entities(*(P4TableEntry(table.alias) for table in schema.tables))
    cells = await browser.entities(*(P4CounterEntry(counter.alias) for counter in schema.counters))
    filled = Counter(entry.table_id for entry in entries if not entry.is_default_action)
    return SwitchView(
        schema.name or await browser.source(),
        schema.arch,
        str(schema.p4runtime_version),
        await browser.primary(),
        tuple(TableFill(table.alias, table.size, filled[table.alias]) for table in schema.tables),
        tuple(_summed(counter.alias, counter.size, cells) for counter in schema.counters),
    )


def _summed(name: str, size: int, cells: list[Any]) -> CounterSum:
    used = [cell for cell in cells if cell.counter_id == name and (cell.packet_count or cell.byte_count)]
    return CounterSum(
        name, size, len(used), sum(cell.packet_count for cell in used), sum(cell.byte_count for cell in used)
    )


def _show(view: SwitchView, ports: tuple[Cells, ...] | None) -> None:
    controller = "no controller" if view.primary is None else f"a controller with election id {view.primary}"
    name = view.program or "without a name"
    typer.echo(f"program {name} ({view.architecture}), P4Runtime {view.p4runtime}, {controller}")
    if ports is not None:
        show_rows(_PORTS, ports, Format.TABLE)
    show_rows(
        ("table", "size", "entries"), [(fill.table, fill.size, fill.entries) for fill in view.tables], Format.TABLE
    )
    counted = [(total.counter, total.size, total.in_use, total.packets, total.bytes) for total in view.counters]
    if counted:
        show_rows(("counter", "size", "in use", "packets", "bytes"), counted, Format.TABLE)
