"""`millrace nic`: properties and received packets of a network device, and polled queues of nodes."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from controller.apps.cli.cluster.nic_queues import list_queues, set_mode
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.output import Format, FormatOption, LineFormat, show_values
from controller.common.console import plain_or_terminal

if TYPE_CHECKING:
    from dataplane.nic import NicSettings, NicStatistics
    from dataplane.nic.devices.ethernet import EthernetDevice

nic = typer.Typer(
    name="nic", help="Inspect network devices; show and set how nodes poll their queues.", no_args_is_help=True
)
nic.command("list")(list_queues)
nic.command("mode")(set_mode)

Interface = Annotated[str, typer.Argument(metavar="IFACE", help="A device of this network namespace.")]
INTERVAL_S = 1.0
_COLUMNS = (
    ("second", 7),
    ("packets/s", 11),
    ("Mbit/s", 10),
    ("missed", 9),
    ("polls", 8),
    ("pauses", 8),
    ("interrupts", 11),
    ("cpu %", 7),
    ("pause us", 9),
    ("batch", 6),
)


class ModeName(StrEnum):
    """Notification of driver threads about new frames."""

    HYBRID = "hybrid"
    POLLING = "polling"
    WAITING = "waiting"
    THROUGHPUT = "throughput"


class IoName(StrEnum):
    """I/O path for frames."""

    RING = "ring"
    THROUGHPUT = "throughput"
    XDP = "xdp"
    DPDK = "dpdk"


@nic.command()
def show(interface: Interface, form: FormatOption = Format.TABLE) -> None:
    """Show a device's driver, queues, rings, time stamps and features."""
    from dataplane.nic.devices.ethernet import read_device  # noqa: PLC0415

    device = read_device(interface)
    if form is not Format.TABLE:
        show_values([device], type(device), form)
        return
    table = Table(show_header=False, box=None)
    for name, text in _describe(device):
        table.add_row(name, text)
    plain_or_terminal().print(table)


def _describe(device: EthernetDevice) -> Iterator[tuple[str, str]]:
    yield "device", f"{device.name} (number {device.index}), driver {device.driver}"
    yield "address", device.address
    yield "MTU", f"{device.mtu} bytes"
    yield "state", ("up" if device.is_up else "down") + (", with link" if device.has_link else ", without link")
    if device.channels is not None:
        yield "queues", f"{device.channels.rx} receive, {device.channels.tx} transmit, {device.channels.combined} both"
    if device.rings is not None:
        yield "rings", f"{device.rings.rx} frames to receive, {device.rings.tx} to send"
    stamps = device.timestamping
    yield (
        "time stamps",
        ", ".join(
            [
                name
                for name, present in (("software", stamps.receive_software), ("hardware", stamps.receive_hardware))
                if present
            ]
            or ["none"]
        ),
    )
    yield "XDP", "none" if device.xdp_program is None else f"program {device.xdp_program}"
    yield "features on", ", ".join(sorted(name for name, is_on in device.features.items() if is_on)) or "none"


@nic.command()
def watch(  # noqa: PLR0917 - a command line's options
    interface: Interface,
    mode: Annotated[ModeName, typer.Option(help="Polling mode of the driver thread.")] = ModeName.HYBRID,
    io: Annotated[
        IoName,
        typer.Option(help="Kernel ring, kernel ring of blocks, AF_XDP (takes frames from the kernel), or DPDK."),
    ] = IoName.RING,
    queues: Annotated[int, typer.Option(help="Number of queues, one thread each.")] = 1,
    seconds: Annotated[float | None, typer.Option(parser=in_seconds(), help="Duration; default: until Ctrl-C.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="TCP port for Prometheus, on this machine.")
    ] = None,
    form: LineFormat = Format.TABLE,
) -> None:
    """Count the packets that a device receives, one line per second (root)."""
    from dataplane.nic import open_nic  # noqa: PLC0415
    from dataplane.nic.metrics import serve_metrics  # noqa: PLC0415

    with ExitStack() as stack:
        opened = stack.enter_context(open_nic(interface, _settings(mode, io, queues)))
        if metrics_port is not None:
            server = stack.enter_context(serve_metrics(metrics_port, opened.read_statistics))
            typer.echo(f"metrics at http://127.0.0.1:{server.port}/metrics", err=form is not Format.TABLE)
        if form is not Format.JSON:
            typer.echo(_written([name for name, _ in _COLUMNS], form))
        for row in rows(opened.read_statistics, seconds, time.monotonic, time.sleep):
            typer.echo(_written(row, form))


def _written(row: Sequence[str], form: Format) -> str:
    """Return a row as a line."""
    match form:
        case Format.TABLE:
            return "".join(cell.rjust(width) for cell, (_, width) in zip(row, _COLUMNS, strict=True))
        case Format.CSV:
            return ",".join(row)
        case Format.JSON:
            return json.dumps({name: float(cell) for cell, (name, _) in zip(row, _COLUMNS, strict=True)})


def _settings(mode: ModeName, io: IoName, queues: int) -> NicSettings:
    from dataplane.nic import Mode, NicSettings, PortKind  # noqa: PLC0415

    kinds = {
        IoName.RING: PortKind.PACKET_V2,
        IoName.THROUGHPUT: PortKind.PACKET_V3,
        IoName.XDP: PortKind.XDP,
        IoName.DPDK: PortKind.DPDK,
    }
    if mode is ModeName.THROUGHPUT or io is IoName.THROUGHPUT:
        return NicSettings.throughput(kinds[io], queues)
    return dataclasses.replace(NicSettings.balanced(kinds[io], queues), mode=Mode[mode.name])


def rows(
    read: Callable[[], NicStatistics],
    seconds: float | None,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[tuple[str, ...]]:
    """Yield a row per second, and one for the remainder at the end."""
    began = then = clock()
    before = read()
    while seconds is None or then - began < seconds:
        # The last interval may be shorter.
        left_s = INTERVAL_S if seconds is None else min(INTERVAL_S, began + seconds - then)
        sleep(left_s)
        now, after = clock(), read()
        yield _row(now - began, now - then, before, after)
        then, before = now, after


def _row(second: float, elapsed_s: float, before: NicStatistics, after: NicStatistics) -> tuple[str, ...]:
    return (
        f"{second:.1f}",
        f"{(after.received - before.received) / elapsed_s:.0f}",
        f"{(after.received_bytes - before.received_bytes) * 8 / elapsed_s / 1e6:.1f}",
        str(sum(after.missed.values()) - sum(before.missed.values())),
        str(after.polls - before.polls),
        str(after.pauses - before.pauses),
        str(after.interrupts - before.interrupts),
        f"{(after.cpu_seconds - before.cpu_seconds) / elapsed_s * 100:.1f}",
        f"{max(thread.pause_us for thread in after.threads):.0f}",
        str(max(thread.batch for thread in after.threads)),
    )
