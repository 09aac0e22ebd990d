"""Options of commands that place operators: the machines, their hardware, and the network between them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from controller.acceleration.network.grounds import Ground

TopologyOption = Annotated[
    str | None,
    typer.Option("--topology", "-t", metavar="TOPOLOGY", help="Topology of the machines: a file, a name or a family."),
]
HardwareOption = Annotated[
    Path | None,
    typer.Option("--hardware", metavar="FILE", help="Accelerators, fan-in: docs/cluster/acceleration-network.md."),
]
FeedOption = Annotated[
    str | None, typer.Option("--feed", metavar="ADDRESS", help="Measured paths: a collector at unix:PATH or HOST:PORT.")
]
ServerOption = Annotated[
    str | None, typer.Option("--server", metavar="ADDRESS", help="With --feed: the path server that gives the routes.")
]
RateOption = Annotated[
    str | None, typer.Option("--rate", metavar="RATE", help="Use one rate between machines: '1 Gbit/s', or inf.")
]
MachinesOption = Annotated[
    int | None, typer.Option("--machines", "-n", min=1, help="Number of machines; default: the file's.")
]
FanInOption = Annotated[
    int | None, typer.Option("--fan-in", "-k", min=2, help="Inputs per aggregation; default: the file's.")
]


_INFINITE: Final = "inf"


def ground_of(
    topology: str | None,
    hardware: Path | None,
    *,
    feed: str | None = None,
    server: str | None = None,
    rate: str | None = None,
    machines: int | None = None,
    fan_in: int | None = None,
) -> Ground:
    """Resolve the options; raise typer.BadParameter for incompatible ones."""
    from controller.acceleration.network.hardware import Hardware, load_hardware  # noqa: PLC0415
    from controller.acceleration.network.loading import load_ground  # noqa: PLC0415

    if feed is not None and rate is not None:
        raise typer.BadParameter("--feed and --rate exclude each other")
    if topology is None and rate is None:
        raise typer.BadParameter("--topology (with --feed where a collector runs) or --rate is required")
    if topology is None and feed is not None:
        raise typer.BadParameter("--feed requires --topology")
    if server is not None and feed is None:
        raise typer.BadParameter("--server requires --feed")
    asked = Hardware() if hardware is None else load_hardware(hardware)
    if machines is not None:
        asked = replace(asked, machines=machines)
    if fan_in is not None:
        asked = replace(asked, fan_in=fan_in)
    if topology is None and asked.machines is None:
        raise typer.BadParameter(
            "the number of machines is unknown: set --machines, or `machines` in a hardware file, or --topology"
        )
    return load_ground(topology, asked, feed=feed, path_server=server, rate_bps=None if rate is None else rate_of(rate))


def rate_of(rate: str) -> float:
    """Return --rate in bit/s, infinite for 'inf'; raise typer.BadParameter if it is not a rate."""
    from dataplane.topology.units import parse_rate_bps  # noqa: PLC0415

    if rate == _INFINITE:
        return math.inf
    try:
        return parse_rate_bps(rate)
    except ValueError as error:
        raise typer.BadParameter(f"--rate: {error}") from None
