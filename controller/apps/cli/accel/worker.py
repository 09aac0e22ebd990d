"""`millrace accel worker`: a compute worker on a host, for clients that know the secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.apps.cli.shared.amounts import in_megabytes, in_seconds


def worker(  # noqa: PLR0917 - a command line's options
    secret_file: Annotated[
        Path,
        typer.Option("--secret-file", metavar="FILE", help="Secret shared with clients; created if missing."),
    ],
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="HOST:PORT or unix:PATH; default: a socket only you can open."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=4096, help="Threads for DuckDB and torch.")] = 1,
    most_table_mb: Annotated[
        int, typer.Option(parser=in_megabytes(1, 1 << 20), help="Limit of a table or result.")
    ] = 1024,
    most_held_mb: Annotated[
        int, typer.Option(parser=in_megabytes(1, 1 << 20), help="Limit of all data in memory.")
    ] = 4096,
    for_s: Annotated[
        float, typer.Option("--for", parser=in_seconds(1, 31_536_000), help="Stop after this long.")
    ] = 86_400.0,
) -> None:
    """Compute operators for clients, one session at a time, until interrupted or out of time."""
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    from controller.acceleration.running import channels, secret_files  # noqa: PLC0415
    from controller.acceleration.running.process import name_of  # noqa: PLC0415
    from controller.acceleration.running.serving import Worker  # noqa: PLC0415
    from controller.apps.cli.shared.common import ready  # noqa: PLC0415
    from dataplane.rpc.own_folder import default_address  # noqa: PLC0415

    address = listen or default_address("accel-worker")
    secret = secret_files.read_or_make(secret_file)
    limits = channels.Limits(most_table_bytes=most_table_mb << 20, most_held_bytes=most_held_mb << 20)
    with channels.listen(address, limits.connections) as listening:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        try:
            ready("accel worker")(f"at {name_of(address, listening.getsockname())} for {for_s:g} s")
            Worker(secret, limits, threads).serve(listening, stop, for_s)
        finally:
            if address.startswith("unix:"):
                Path(address.removeprefix("unix:")).unlink(missing_ok=True)
