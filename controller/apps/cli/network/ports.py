"""`millrace ports`: state and settings of a switch's ports over gNMI."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.output import Cells, Format, FormatOption, LineFormat, line_of, show, utc
from controller.apps.cli.state.session import Tls, tls_of

if TYPE_CHECKING:
    from dataplane.rpc.access.settings import TlsSettings
    from dataplane.switch.ports.states import PortState

ports = typer.Typer(
    name="ports", help="Show and set a switch's ports and BFD sessions over gNMI.", no_args_is_help=True
)

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The switch's P4Runtime address, shared by gNMI.")]
_COLUMNS: Final = ("port", "device", "admin", "oper", "since", "Mbit/s", "hello", "hello since", "cause")


@ports.command("show")
def show_ports(address: Address, tls: Tls = None, form: FormatOption = Format.TABLE) -> None:
    """List a switch's ports: whether the device is up and the neighbour answers; times are UTC."""
    from controller.network.gnmi.queries import read_ports  # noqa: PLC0415

    listed = asyncio.run(read_ports(address, tls_of(tls)))
    show(_COLUMNS, map(_cells, listed), form)


@ports.command()
def watch(address: Address, tls: Tls = None, form: LineFormat = Format.TABLE) -> None:
    """Print a line for each port, then for each change, until interrupted."""
    asyncio.run(_watch(address, tls_of(tls), form))


@ports.command("set")
def set_port(
    address: Address,
    device: Annotated[str, typer.Argument(help="Device of the port, as in `show`.")],
    state: Annotated[str, typer.Argument(metavar="up|down", help="Enable or disable.")],
    tls: Tls = None,
) -> None:
    """Enable or disable a port."""
    if state not in ("up", "down"):
        raise typer.BadParameter(f"{state!r} is not up or down", param_hint="up|down")
    from controller.network.gnmi.queries import set_port as ask  # noqa: PLC0415

    asyncio.run(ask(address, device, up=state == "up", tls=tls_of(tls)))


async def _watch(address: str, tls: TlsSettings | None, form: Format) -> None:
    from controller.network.gnmi.queries import watch_ports  # noqa: PLC0415

    if form is Format.CSV:
        typer.echo(line_of(_COLUMNS, _COLUMNS, form))
    async for state in watch_ports(address, tls):
        cells: Cells = _cells(state)
        if form is Format.TABLE:
            cells = ["-" if cell is None else str(cell) for cell in cells]
        typer.echo(line_of(_COLUMNS, cells, form))


def _cells(state: PortState) -> Cells:
    hello = state.hello
    speed = None if state.speed_bps is None else f"{state.speed_bps / 1e6:g}"
    port = (state.port, state.device, "up" if state.admin_up else "down", state.oper, utc(state.since_ns), speed)
    if hello is None:
        return (*port, None, None, None)
    return (*port, hello.state, utc(hello.since_ns), hello.diagnostic if hello.is_lost else None)
