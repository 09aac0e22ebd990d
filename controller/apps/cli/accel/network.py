"""`millrace accel network`: duration of a reduction over a fabric, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.accel.ground import (
    FanInOption,
    FeedOption,
    HardwareOption,
    MachinesOption,
    RateOption,
    ServerOption,
    TopologyOption,
    ground_of,
)
from controller.apps.cli.shared.amounts import in_gigabytes
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show
from controller.apps.cli.shared.units import milliseconds
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.acceleration.network.grounds import Ground
    from controller.acceleration.network.timing import TimedRound

_COLUMNS = (
    "round",
    "groups",
    "transfers",
    "seconds",
    "delay ms",
    "bandwidth is",
    "busiest link",
    "flows",
    "free Mbit/s",
)
_KEYS = (
    *("round", "groups", "transfers", "seconds", "s_per_gb", "delay_s"),
    *("basis", "busiest", "busiest_flows", "busiest_bps", "full"),
)


def network(  # noqa: PLR0917 - a command line's options
    topology: TopologyOption = None,
    hardware: HardwareOption = None,
    feed: FeedOption = None,
    server: ServerOption = None,
    rate: RateOption = None,
    machines: MachinesOption = None,
    fan_in: FanInOption = None,
    output: Annotated[float, typer.Option(parser=in_gigabytes(), help="GB that each machine sends in a round.")] = 0.1,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the rounds of a reduction over the machines: duration and links; senders and receivers (JSON)."""
    ground = ground_of(topology, hardware, feed=feed, server=server, rate=rate, machines=machines, fan_in=fan_in)
    rounds = ground.tree.rounds if ground.tree is not None else ()
    numbered = list(enumerate(rounds, 1))
    if form is Format.JSON:
        show(_KEYS, (_row(ground, number, timed, output) for number, timed in numbered), form)
    elif rounds:
        show(_COLUMNS, (_cells(ground, number, timed, output) for number, timed in numbered), form)
    for line in _summary(ground, output):
        typer.echo(line, err=form is not Format.TABLE)


def _cells(ground: Ground, number: int, timed: TimedRound, output_gb: float) -> Cells:
    return (
        number,
        _groups(ground, number),
        len(timed.transfers),
        _figure(timed.s_per_gb * output_gb + timed.delay_s),
        milliseconds(round(timed.delay_s * NS_PER_S)),
        str(timed.basis),
        str(timed.busiest),
        f"{timed.busiest_flows:g}",
        _figure(timed.busiest_bps / 1e6),
    )


def _figure(value: float) -> str:
    """Format a number with at least four digits, with an exponent only if it is tiny."""
    return f"{value:.4g}" if value < 9999.5 else f"{value:.0f}"


def _groups(ground: Ground, number: int) -> int:
    return len(ground.tree.tree.rounds[number - 1]) if ground.tree is not None else 0


def _row(ground: Ground, number: int, timed: TimedRound, output_gb: float) -> Cells:
    transfers = [{"src": transfer.src, "dst": transfer.dst} for transfer in timed.transfers]
    seconds = timed.s_per_gb * output_gb + timed.delay_s
    figures = (seconds, timed.s_per_gb, timed.delay_s, str(timed.basis), str(timed.busiest), timed.busiest_flows)
    return (number, _groups(ground, number), transfers, *figures, timed.busiest_bps, [str(link) for link in timed.full])


def _summary(ground: Ground, output_gb: float) -> Iterator[str]:
    """Yield both models' times for the same output, the switch that computes sums, and the assumptions."""
    from dataclasses import replace  # noqa: PLC0415

    from controller.acceleration.model import Works, times  # noqa: PLC0415
    from controller.acceleration.network.grounds import NO_SWITCH  # noqa: PLC0415
    from controller.acceleration.values import Growth, TransferModel, Work  # noqa: PLC0415

    machines = ground.machines
    works = Works.of([Work("output", Growth.LINEAR, 0.0, 10 * output_gb, output_gb)])
    by = {model: times(works, replace(machines, transfer=model))[0].transfer_s for model in TransferModel}
    if machines.count == 1:
        yield "1 machine: nothing is sent"
        return
    rate = machines.network.rate_gbit_per_s * 1e3
    yield f"{machines.count} machines, fan-in {machines.fan_in}, {_figure(rate)} Mbit/s from node to node"
    yield (
        f"outputs of {output_gb:g} GB: {_figure(by[TransferModel.PER_PATH])} s by the tree (per-path), "
        f"{_figure(by[TransferModel.SUM])} s by the sum of all data over one rate; decisions use {machines.transfer}"
    )
    if isinstance(ground.switch, str):
        if ground.switch != NO_SWITCH:
            yield f"switch: {ground.switch}"
    else:
        yield (
            f"switch: sums are computed at {ground.switch.tree.root}, {_figure(ground.switch.s_per_gb)} s for a GB, "
            f"up to {ground.switch.slots} lanes; all wait for {ground.switch.busiest}"
        )
    yield from ground.notes
