"""`millrace store`: serve, read and write named content, and show a switch's copies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.amounts import in_bytes, in_milliseconds, in_seconds
from controller.apps.cli.shared.common import check_outputs, log_to_stderr, ready
from controller.apps.cli.shared.output import Format, FormatOption, show
from dataplane.given import read_given
from dataplane.wire.store import NAMES_ADDRESS, UDP_PORT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.network.p4runtime.grpc_session import GrpcSession
    from controller.network.tables.store import Placed
    from dataplane.store.producer import Producer

store = typer.Typer(name="store", help="Serve, read and write named content cached in switches.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name, such as /model/weights.")]
Server = Annotated[str, typer.Option("--server", metavar="ADDRESS", help="The producer's IPv4 address.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The producer's UDP port.")]
Deadline = Annotated[
    float, typer.Option("--deadline", "--deadline-s", parser=in_seconds(0.001, 1e9), help="Maximum time to wait.")
]
Switch = Annotated[str, typer.Argument(metavar="SWITCH", help="P4Runtime address: unix:/path or host:port.")]
DeviceId = Annotated[
    int | None, typer.Option(min=0, help="The switch's P4Runtime device id; default: the one it tells, else 1.")
]

_HOW_OFTEN_S = 1.0


@store.command()
def serve(  # noqa: PLR0917 - a command line's options
    file: Annotated[Path, typer.Argument(metavar="FILE", help="SQLite file for the content.")],
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="IPv4 address to serve at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="UDP port; 0: any free port.")] = UDP_PORT,
    writer: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="Host that may write; on loopback: its own by default.")
    ] = None,
    anyone: Annotated[bool, typer.Option("--anyone", help="Every host that reaches the address may write.")] = False,
    freshness_ms: Annotated[
        int,
        typer.Option(
            "--freshness",
            "--freshness-ms",
            parser=in_milliseconds(),
            help="Maximum age of served copies; 0: none.",
        ),
    ] = 1000,
    announce: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX", help="Prefix of served names, such as /model: read them without --server."),
    ] = None,
    most_names: Annotated[int, typer.Option(min=1, help="Maximum number of names with content.")] = 100_000,
    most_bytes: Annotated[
        int, typer.Option(parser=in_bytes(1), help="Maximum size of content, with 256 bytes per segment.")
    ] = 1 << 30,
    most_open_writes: Annotated[int, typer.Option(min=1, help="Maximum number of long values in transfer.")] = 1024,
) -> None:
    """Serve content by name until Ctrl-C."""
    from dataplane.store.errors import StoreError  # noqa: PLC0415
    from dataplane.store.producer import Producer, is_loopback  # noqa: PLC0415
    from dataplane.store.producer_core import Quotas  # noqa: PLC0415

    if not (writer or anyone or is_loopback(address)):
        raise StoreError(f"{address} is not loopback: name writers (--writer ADDRESS), or use --anyone")
    log_to_stderr("store")
    quotas = Quotas(most_names, most_bytes, most_open_writes)
    with Producer(
        str(file),
        address=address,
        port=port,
        writers=writer or None,
        anyone=anyone,
        freshness_ms=freshness_ms,
        announced=announce or (),
        quotas=quotas,
    ) as producer:
        where = "{}:{}".format(*producer.address)
        asyncio.run(_until_stopped(producer, f"{file} at {where}"))


@store.command()
def get(
    name: Name,
    server: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The producer's IPv4 address; default: who announces the name.")
    ] = NAMES_ADDRESS,
    port: Port = UDP_PORT,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the value; default: stdout.")] = None,
    deadline_s: Deadline = 5.0,
) -> None:
    """Read a value."""
    from dataplane.store.client import StoreClient  # noqa: PLC0415

    check_outputs(None, out)
    with StoreClient(server, port=port, deadline_s=deadline_s) as client:
        content = client.get(name)
    if out is None:
        typer.echo(content.value, nl=False)
    else:
        out.write_bytes(content.value)
        typer.echo(f"{name}: version {content.version}, {len(content.value)} bytes")


@store.command()
def put(  # noqa: PLR0917 - a command line's options
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Value to write.")],
    server: Server,
    port: Port = UDP_PORT,
    version: Annotated[int | None, typer.Option(min=1, help="Version, for a name that switches record.")] = None,
    deadline_s: Deadline = 5.0,
) -> None:
    """Write a value; print its version once no reader can get an older one."""
    from dataplane.store.client import StoreClient  # noqa: PLC0415

    with StoreClient(server, port=port, deadline_s=deadline_s) as client:
        if version is None:
            version = client.put(name, read_given(file))
        else:
            client.record(name, read_given(file), version=version)
    typer.echo(f"{name}: version {version}")


@store.command()
def names(
    switch: Switch,
    name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Name to resolve: switches hold only hashes.")
    ] = None,
    device_id: DeviceId = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the segments that a switch holds, and packets per segment."""
    from dataplane.store.names import digest  # noqa: PLC0415

    by_digest = {digest(content_name): content_name for content_name in name or ()}
    rows = asyncio.run(_names(switch, device_id))
    columns = ("name", "segment", "kind", "cell", "packets", "producer")
    show(columns, (_row(placed, packets, by_digest) for placed, packets in rows), form)


@store.command()
def counters(switch: Switch, device_id: DeviceId = None, form: FormatOption = Format.TABLE) -> None:
    """Show a switch's counters of packets with names that it holds."""
    from controller.network.tables.store import OUTCOME_NAMES  # noqa: PLC0415

    counted = asyncio.run(_outcomes(switch, device_id))
    show(("outcome", "packets"), zip(OUTCOME_NAMES, counted, strict=False), form)


async def _until_stopped(producer: Producer, line: str) -> None:
    from dataplane.running import stop_on_signals  # noqa: PLC0415

    stop = stop_on_signals()
    ready("store")(line)
    while not stop.is_set():
        producer.check()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _HOW_OFTEN_S)


@asynccontextmanager
async def _reading(switch: str, device_id: int | None) -> AsyncIterator[GrpcSession]:
    from controller.network.p4runtime.grpc_session import GrpcSession, Target  # noqa: PLC0415
    from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema  # noqa: PLC0415

    target = Target(switch, switch, 1 if device_id is None else device_id)
    session = GrpcSession(target, load_schema(*fabric_program(FABRIC_AGGREGATION)))
    try:
        await session.connect_to_read()
        if device_id is None:
            await session.ask_device()
        await session.check_program()
        yield session
    finally:
        await session.close()


async def _names(switch: str, device_id: int | None) -> list[tuple[Placed, int]]:
    from controller.network.content.stores import by_segment  # noqa: PLC0415
    from controller.network.tables.store import PACKETS, held_in  # noqa: PLC0415

    async with _reading(switch, device_id) as session:
        held, packets = held_in(await session.read()), by_segment(await session.packets(PACKETS))
    rows = [(placed, packets.get(segment, 0)) for segment, placed in held.placed.items()]
    return sorted(rows, key=lambda pair: (-pair[1], pair[0].cell))


async def _outcomes(switch: str, device_id: int | None) -> list[int]:
    from controller.network.tables.store import OUTCOMES  # noqa: PLC0415

    async with _reading(switch, device_id) as session:
        return await session.counts(OUTCOMES)


def _row(placed: Placed, packets: int, by_digest: dict[int, str]) -> tuple[object, ...]:
    from controller.network.tables.store import Copied  # noqa: PLC0415

    name = by_digest.get(placed.segment.name, f"{placed.segment.name:032x}")
    kind, producer = "recorded", ""
    if isinstance(placed, Copied):
        kind, producer = "copy", str(IPv4Address(placed.producer))
    return name, placed.segment.number, kind, placed.cell, packets, producer
