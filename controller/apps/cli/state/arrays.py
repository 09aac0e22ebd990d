"""`millrace counter` and `millrace register`: a switch's arrays, over P4Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.amounts import in_bytes
from controller.apps.cli.shared.output import Cells, Format, FormatOption
from controller.apps.cli.shared.output import show as show_rows
from controller.apps.cli.state.session import Address, DeviceId, ElectionId, Tls, ask, check_name

if TYPE_CHECKING:
    from controller.network.p4runtime.browsing import SwitchBrowser

counter = typer.Typer(name="counter", help="List, read and write counters of a running switch.", no_args_is_help=True)
register = typer.Typer(
    name="register", help="List, read and write registers of a running switch.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name as in `list`.")]
Index = Annotated[int, typer.Argument(min=0, metavar="INDEX", help="Index of the cell.")]
OneIndex = Annotated[int | None, typer.Option("--index", min=0, help="Only this cell; default: all.")]
All = Annotated[bool, typer.Option("--all", help="Also show cells that are 0.")]


@counter.command("list")
def list_counters(
    address: Address, device_id: DeviceId = None, tls: Tls = None, form: FormatOption = Format.TABLE
) -> None:
    """List the counters of the program that a switch runs; those of tables' entries are shown with these."""

    async def question(browser: SwitchBrowser) -> list[Cells]:
        return [(counter.alias, counter.unit.name.lower(), counter.size) for counter in browser.schema.counters]

    show_rows(("counter", "counts", "size"), ask(address, device_id, tls, question), form)


@counter.command("read")
def read_counter(  # noqa: PLR0917 - a command line's options
    address: Address,
    name: Name,
    index: OneIndex = None,
    every: All = False,
    device_id: DeviceId = None,
    tls: Tls = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a counter's packets and bytes."""

    async def question(browser: SwitchBrowser) -> list[Cells]:
        from finsy import P4CounterEntry  # noqa: PLC0415

        check_name(browser, "counter", name, (counter.alias for counter in browser.schema.counters))
        entries = await browser.entities(P4CounterEntry(name, index=index))
        return [
            (entry.index, entry.packet_count, entry.byte_count)
            for entry in entries
            if every or index is not None or entry.packet_count or entry.byte_count
        ]

    show_rows(("index", "packets", "bytes"), ask(address, device_id, tls, question), form)


@counter.command("write")
def write_counter(  # noqa: PLR0917 - a command line's options
    address: Address,
    name: Name,
    index: Index,
    packets: Annotated[int, typer.Option(min=0, help="Value to count on from.")] = 0,
    nbytes: Annotated[int, typer.Option("--bytes", parser=in_bytes(), help="Value to count on from.")] = 0,
    device_id: DeviceId = None,
    election_id: ElectionId = 1,
    tls: Tls = None,
) -> None:
    """Set a cell of a counter, by default to 0, as the switch's primary: not while a controller runs."""

    async def question(browser: SwitchBrowser) -> None:
        from finsy import P4CounterData, P4CounterEntry  # noqa: PLC0415
        from finsy.proto import p4r  # noqa: PLC0415

        check_name(browser, "counter", name, (counter.alias for counter in browser.schema.counters))
        data = P4CounterData(packet_count=packets, byte_count=nbytes)
        await browser.change(p4r.Update.MODIFY, P4CounterEntry(name, index=index, data=data))

    ask(address, device_id, tls, question, election_id=election_id)


@register.command("list")
def list_registers(
    address: Address, device_id: DeviceId = None, tls: Tls = None, form: FormatOption = Format.TABLE
) -> None:
    """List the registers of the program that a switch runs."""

    async def question(browser: SwitchBrowser) -> list[Cells]:
        return [(register.alias, register.size) for register in browser.schema.registers]

    show_rows(("register", "size"), ask(address, device_id, tls, question), form)


@register.command("read")
def read_register(  # noqa: PLR0917 - a command line's options
    address: Address,
    name: Name,
    index: OneIndex = None,
    every: All = False,
    device_id: DeviceId = None,
    tls: Tls = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a register's cells."""

    async def question(browser: SwitchBrowser) -> list[Cells]:
        from finsy import P4RegisterEntry  # noqa: PLC0415

        check_name(browser, "register", name, (register.alias for register in browser.schema.registers))
        entries = await browser.entities(P4RegisterEntry(name, index=index))
        return [(entry.index, entry.data) for entry in entries if every or index is not None or entry.data]

    show_rows(("index", "value"), ask(address, device_id, tls, question), form)


@register.command("write")
def write_register(  # noqa: PLR0917 - a command line's options
    address: Address,
    name: Name,
    index: Index,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A number: 5, 0x5.")],
    device_id: DeviceId = None,
    election_id: ElectionId = 1,
    tls: Tls = None,
) -> None:
    """Set a cell of a register, as the switch's primary: not while a controller runs."""
    try:
        number = int(value, 0)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r} is not a number", param_hint="VALUE") from error

    async def question(browser: SwitchBrowser) -> None:
        from finsy import P4RegisterEntry  # noqa: PLC0415
        from finsy.proto import p4r  # noqa: PLC0415

        check_name(browser, "register", name, (register.alias for register in browser.schema.registers))
        await browser.change(p4r.Update.MODIFY, P4RegisterEntry(name, index=index, data=number))

    ask(address, device_id, tls, question, election_id=election_id)
