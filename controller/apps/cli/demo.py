"""`millrace demo`: the control loop at work, and demos of telemetry, named content and training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

if TYPE_CHECKING:
    from controller.network.tables.telemetry.int_watch import Mode

demo = typer.Typer(
    name="demo",
    help="Run the whole control loop: congest a link, watch telemetry, decisions and rerouted traffic.",
    invoke_without_command=True,
)

Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the picture and figures.")]
Spec = Annotated[str, typer.Option("--topology", metavar="FILE", help="A file, a name, or a family: fat-tree:k=4.")]
OUT = Path("demo-out")


@demo.callback()
def loop(  # noqa: PLR0917 - a command line's options
    context: typer.Context,
    topology_spec: Spec = "abilene",
    time: Annotated[str, typer.Option(metavar="virtual|kernel", help="One process, or namespaces (root).")] = "virtual",
    demands: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Demand matrix; default: the topology's own."),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", "-s", metavar="FILE", help="Scenario, delays and decision settings.")
    ] = None,
    out: Out = OUT,
    seed: Annotated[int, typer.Option(help="Seed of arrivals and of the P4 programs' random numbers.")] = 1,
    web: Annotated[bool, typer.Option("--web", help="Run at the pace of the clock, in the operators' page.")] = False,
    background: Annotated[
        str, typer.Option(metavar="packets|fluid", help="Send every packet, or rates and sampled packets.")
    ] = "packets",
) -> None:
    """Run the whole control loop: congest a link, watch telemetry, decisions and rerouted traffic."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    from controller.apps.demo.command import DemoOptions, run  # noqa: PLC0415

    run(DemoOptions(topology_spec, time, demands, settings, out, seed, web, background))


def _refuse_options(context: typer.Context) -> None:
    """Refuse options before a command's name: they belong to the plain demo and would have no effect."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            command = context.invoked_subcommand
            raise typer.BadParameter(f"is before {command}: write it after", param_hint=parameter.opts[0])


@demo.command("int")
def packet(  # noqa: PLR0917 - a command line's options
    topology_spec: Spec = "abilene",
    src: Annotated[str | None, typer.Option(metavar="HOST", help="Sender; default: the first host.")] = None,
    dst: Annotated[
        str | None, typer.Option(metavar="HOST", help="Receiver; default: the host behind most switches.")
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="md|hop-by-hop|mx|xd", help="INT mode: contents of the packet, and reporters.")
    ] = "md",
    out: Out = OUT,
    seed: Annotated[int, typer.Option(help="Seed of other hosts' traffic.")] = 1,
) -> None:
    """Show one packet with in-band telemetry: its headers on every cable and its reports, printed and drawn."""
    from controller.apps.demo.packet.command import PacketOptions, run  # noqa: PLC0415

    run(PacketOptions(topology_spec, src, dst, _mode(mode), out, seed))


@demo.command()
def store(
    topology_spec: Spec = "leaf-spine",
    producer: Annotated[str | None, typer.Option(metavar="HOST", help="Producer; default: the last host.")] = None,
    out: Out = OUT,
    seed: Annotated[int, typer.Option(help="Seed of the reads.")] = 1,
) -> None:
    """Show named content served by a switch: hits, misses, a write, freshness, copies that follow readers."""
    from controller.apps.demo.store.command import StoreOptions, run  # noqa: PLC0415

    run(StoreOptions(topology_spec, producer, out, seed))


@demo.command()
def training(
    workers: Annotated[int, typer.Option(min=3, max=8, help="Number of workers; one is killed.")] = 4,
    steps: Annotated[int, typer.Option(min=30, max=2000, help="Number of steps, in three equal phases.")] = 150,
    out: Out = OUT,
) -> None:
    """Train with PyTorch over a switch in a kernel fabric; a worker is killed, then the switch (root, torch)."""
    from controller.apps.demo.training.command import TrainingOptions, run  # noqa: PLC0415

    run(TrainingOptions(workers, steps, out))


def _mode(text: str) -> Mode:
    from controller.network.tables.telemetry.int_watch import Mode  # noqa: PLC0415

    for choice in get_args(Mode):
        if text == choice:
            mode: Mode = choice
            return mode
    raise typer.BadParameter(f"{text!r} is not one of {', '.join(get_args(Mode))}", param_hint="--mode")
