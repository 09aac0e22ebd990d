"""`millrace paths segments`: the routes in force as segment lists, for networks whose routers run no P4."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from controller.apps.cli.network.path_server import SERVER, Server, ask_at, flow_name
from controller.apps.cli.shared.output import Format, FormatOption, show
from controller.common.errors import ControllerError

if TYPE_CHECKING:
    from controller.network.intents import RouteSet
    from controller.network.segment_lists import SegmentList, SegmentLists


def segments(
    settings: Annotated[
        Path, typer.Argument(metavar="FILE", help="Segment identifiers of routers and links: srv6 or mpls.")
    ],
    server: Server = SERVER,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JSON there, anew after each change, until interrupted.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show flows' explicit routes as segment lists (SRv6 or SR-MPLS), to be installed where no P4 runs."""
    from controller.network.segment_lists import SegmentLists, SegmentSettings  # noqa: PLC0415
    from dataplane.config import load  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    given = load(settings, SegmentSettings)
    lists = SegmentLists(load_topology(given.topology), given)
    if write is not None:
        asyncio.run(_keep(write, server, lists))
        return
    current, _ = ask_at(server, lambda client: client.current_routes())
    found = [lists.list_of(route) for route in current.routes]
    if form is Format.TABLE:
        show(("flow", "path", "segments", "problem"), map(_cells, found), form)
    else:
        rows = [_row(each) for each in found]
        show(list(_COLUMNS), ([row[name] for name in _COLUMNS] for row in rows), form)


_COLUMNS = ("src_host", "dst_host", "protocol", "src_port", "dst_port", "switches", "segments", "problem")


def _cells(found: SegmentList) -> tuple[object, ...]:
    return flow_name(found.flow), found.switches, tuple(map(str, found.segments)), found.problem


def _row(found: SegmentList) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(found.flow)
    return {**row, "switches": found.switches, "segments": found.segments, "problem": found.problem}


async def _keep(file: Path, server: str, lists: SegmentLists) -> None:
    """Write each set of routes to a file; raise ControllerError if it cannot be written."""
    from controller.network.paths.service.client import RouteClient, RouteClientSettings  # noqa: PLC0415
    from dataplane.running import stop_on_signals, until_first_ends  # noqa: PLC0415

    async def follow() -> None:
        async with RouteClient(RouteClientSettings(address=server)) as client:
            async for current in client.routes():
                _write(file, lists, current)

    await until_first_ends(follow(), _ended(stop_on_signals()))


async def _ended(stop: asyncio.Event) -> None:
    await stop.wait()


def _write(file: Path, lists: SegmentLists, current: RouteSet) -> None:
    rows = [_row(lists.list_of(route)) for route in current.routes]
    text = msgspec.json.encode({"version": current.version, "kind": lists.kind, "flows": rows})
    try:
        descriptor, written = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text + b"\n")
        Path(written).replace(file)
    except OSError as error:
        raise ControllerError(f"{file}: {error.strerror or error}") from error
    problems = sum(row["problem"] is not None for row in rows)
    said = f", {problems} without segments" if problems else ""
    typer.echo(f"version {current.version}: {len(rows)} {'flow' if len(rows) == 1 else 'flows'}{said}")
