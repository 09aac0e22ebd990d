"""`millrace memory`: a machine's tiers, hosts that serve them, pools over hosts, replays of traces."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.common import SettingsFile, run_daemon, slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.memory.pool.service import Answered, PoolStatus

memory = typer.Typer(
    name="memory", help="Pool the memory of machines: tiers, moves of blocks, requests.", no_args_is_help=True
)
pool = typer.Typer(name="pool", help="Run a pool over hosts, and use it.", no_args_is_help=True)
memory.add_typer(pool)

PoolAddress = Annotated[
    str, typer.Option("--pool", metavar="unix:PATH", help="Socket of the pool; default: the user's own.")
]
Key = Annotated[int, typer.Argument(min=0, max=(1 << 63) - 1, metavar="KEY", help="Number of the block.")]
_RANGE: Final = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?")
_MOST_KEYS: Final = 4096


@memory.command()
def tiers(
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Read proc/ and sys/ of this folder (a recorded machine).")
    ] = Path("/"),
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the tiers that this machine could have: NUMA nodes and CXL by distance, NVMe drives."""
    from collectors.devices.root import Root  # noqa: PLC0415
    from controller.memory.discovery import found_tiers  # noqa: PLC0415
    from dataplane.errors import ConfigError  # noqa: PLC0415

    if not (root / "proc").is_dir():
        raise ConfigError("is not a machine's root: it has no folder proc", file=str(root))
    rows = (
        (tier.name, tier.kind, tier.total_bytes, tier.free_bytes, tier.distance, tier.note)
        for tier in found_tiers(Root(root))
    )
    show(("tier", "kind", "bytes", "free bytes", "distance", "note"), rows, form)


@memory.command()
def serve(settings: SettingsFile) -> None:
    """Run a host: its tiers, their sensors, and the server of their blocks."""
    from controller.memory.host import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@memory.command()
@slow("replaying")
def replay(  # noqa: PLR0917 - a command line's options
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Block trace (CSV: version, time, op, size, lbn).")],
    settings: SettingsFile,
    compression: Annotated[int, typer.Option(min=1, help="Time runs this many times as fast.")] = 100,
    first: Annotated[int, typer.Option(min=0, metavar="N", help="Number of the first request.")] = 0,
    requests: Annotated[int, typer.Option(min=0, metavar="N", help="Number of requests; 0: all that follow.")] = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Replay a block trace on a pool's hosts in real time, and show what requests waited for.

    No other pool may use the hosts meanwhile. Requests are decided on as the settings say.
    """
    from controller.learning.inputs.blocks import BlockSettings  # noqa: PLC0415
    from controller.memory.pool import process, replay  # noqa: PLC0415
    from controller.memory.pool.pool import MemoryPool  # noqa: PLC0415

    pool_settings = process.DAEMON.load_settings(settings)
    decider = process.decider_of(pool_settings)
    with MemoryPool(pool_settings, decider) as opened:
        timed = replay.trace(
            trace,
            BlockSettings(
                time_compression=compression, extent_bytes=opened.block_bytes, first=first, requests=requests
            ),
        )
        loaded = replay.load_blocks(opened, timed)
        decider.open()
        try:
            played = replay.replay(opened, timed)
        finally:
            decider.close()
    rows: list[Cells] = [
        ("blocks loaded", loaded),
        ("requests", played.requests),
        ("failed", f"{played.failed} ({played.first_error})" if played.failed else 0),
        ("mean wait, us", played.mean_wait_ns / 1e3),
        ("mean latency, us", played.mean_latency_ns / 1e3),
        ("mean response, us", played.mean_response_ns / 1e3),
        ("p99 response, us", played.p99_response_ns / 1e3),
        ("moved bytes", played.moved_bytes),
        ("of these from other hosts", played.remote_bytes),
        ("evicted bytes", played.evicted_bytes),
        ("submitted late by at most, us", played.late_ns / 1e3),
        ("took, s", played.span_ns / 1e9),
    ]
    show(("what", "value"), rows, form)


@pool.command("serve")
def serve_pool(settings: SettingsFile) -> None:
    """Run a pool over hosts: it decides where requests run, and moves and evicts blocks."""
    from controller.memory.pool import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@pool.command()
def status(address: PoolAddress = "", form: FormatOption = Format.TABLE) -> None:
    """Show a pool's tiers as its sensors see them; in the table also its blocks and requests."""
    from controller.memory.pool.service import PoolClient  # noqa: PLC0415

    with PoolClient(_address(address)) as client:
        found = client.status
    columns = ("host", "tier", "kind", "state", "used", "capacity", "read us", "write us", "read MB/s", "write MB/s")
    show(columns, _tier_rows(found), form)
    if form is Format.TABLE:
        runs = ", ".join(f"{name} {number}" for name, number in sorted(found.counts.items())) or "none"
        typer.echo(f"Blocks: {found.blocks}, cached {found.cached}, not yet home {found.dirty}, lost {found.lost}.")
        typer.echo(f"Requests: {runs}.")
        if found.experiences:
            learned = ", ".join(f"{name} {number}" for name, number in sorted(found.experiences.items()))
            typer.echo(f"Network: version {found.version}, experiences: {learned}.")


def _tier_rows(found: PoolStatus) -> Iterator[Cells]:
    for host in found.hosts:
        for tier in host.description.tiers:
            state = ("" if host.is_up else "down, ") + ("cache" if tier.is_cache else "home")
            yield (
                host.description.host,
                tier.name,
                tier.kind,
                state,
                tier.used_bytes,
                tier.capacity_bytes,
                tier.read_ns / 1e3,
                tier.write_ns / 1e3,
                tier.read_bps / 8e6,
                tier.write_bps / 8e6,
            )


@pool.command()
def run(  # noqa: PLR0917 - a command line's options
    read: Annotated[list[str] | None, typer.Option(metavar="KEYS", help="Blocks to read: 7, or 7-12.")] = None,
    write: Annotated[list[str] | None, typer.Option(metavar="KEYS", help="Blocks to write whole.")] = None,
    operations: Annotated[int, typer.Option(min=0, help="Integer operations.")] = 0,
    float_operations: Annotated[int, typer.Option(min=0, help="Single-precision operations.")] = 0,
    address: PoolAddress = "",
    form: FormatOption = Format.TABLE,
) -> None:
    """Run a request on a pool: blocks to read and write, and operations as counts."""
    from controller.memory.pool.service import PoolClient  # noqa: PLC0415
    from controller.memory.pool.values import Request  # noqa: PLC0415

    request = Request(_keys(read), _keys(write), float_operations, operations)
    with PoolClient(_address(address)) as client:
        show(("what", "value"), _result_rows(client.run(request)), form)


def _result_rows(result: Answered) -> Iterator[Cells]:
    yield "host", result.host
    for name in ("wait", "latency", "response", "eviction"):
        yield f"{name}, us", getattr(result, f"{name}_ns") / 1e3
    for name in ("moved", "remote", "evicted"):
        yield f"{name} bytes", getattr(result, f"{name}_bytes")


@pool.command()
def put(
    key: Key,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Content, at most a block; the rest is 0.")],
    address: PoolAddress = "",
) -> None:
    """Write a file into a block; when this returns, the block's home has it."""
    from controller.memory.pool.service import PoolClient  # noqa: PLC0415
    from dataplane.errors import ConfigError  # noqa: PLC0415
    from dataplane.given import read_given  # noqa: PLC0415

    with PoolClient(_address(address)) as client:
        size = client.status.hosts[0].description.block_bytes
        try:
            data = read_given(file, size)
        except OSError as error:
            raise ConfigError(error.strerror or str(error), file=str(file)) from None
        client.write(key, data.ljust(size, b"\0"))


@pool.command()
def get(key: Key, address: PoolAddress = "") -> None:
    """Print a block's content."""
    from controller.memory.pool.service import PoolClient  # noqa: PLC0415

    with PoolClient(_address(address)) as client:
        sys.stdout.buffer.write(client.read(key))


def _address(stated: str) -> str:
    from dataplane.rpc.own_folder import default_address  # noqa: PLC0415

    return stated or default_address("memory-pool")


def _keys(texts: list[str] | None) -> tuple[int, ...]:
    """Return the keys of words such as 7 and 7-12; raise BadParameter for anything else."""
    keys: list[int] = []
    for text in itertools.chain.from_iterable(text.split(",") for text in texts or ()):
        match = _RANGE.fullmatch(text.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first or last - first >= _MOST_KEYS:
            raise typer.BadParameter(f"{text!r} is neither a block such as 7 nor a range such as 7-12")
        keys += range(first, last + 1)
    return tuple(dict.fromkeys(keys))
