"""`millrace switch`, `collector` and `controller`: the daemons of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from controller.apps.cli.shared.common import SettingsFile, run_daemon
from controller.apps.cli.shared.output import Format, FormatOption, show

switch_command = typer.Typer()
collector = typer.Typer(name="collector", help="Run the collector of telemetry reports.", no_args_is_help=True)
controller = typer.Typer(
    name="controller", help="Run the controller, which writes the switches' tables.", no_args_is_help=True
)

BareSettings = Annotated[Path | None, typer.Option("--settings", "-s", hidden=True)]
_BARE: Final = "millrace: `millrace {0}` is deprecated: use `millrace {0} serve`"


@switch_command.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def switch(context: typer.Context) -> None:
    """Run a switch: a compiled P4 program between network devices, with P4Runtime; `show ADDRESS`: look into one.

    `serve` before the arguments may be left out, so that the command takes the place of simple_switch_grpc.
    """
    if context.args[:1] == ["show"]:
        from controller.apps.cli.state.switch import switch_show  # noqa: PLC0415

        looking = typer.main.get_command(switch_show)
        # Its parent has no --help of its own, which it would inherit.
        with looking.make_context("show", context.args[1:], parent=context, help_option_names=["--help"]) as inner:
            looking.invoke(inner)
        return
    from dataplane.switch import process  # noqa: PLC0415

    raise typer.Exit(process.main(context.args[1:] if context.args[:1] == ["serve"] else context.args))


@collector.callback(invoke_without_command=True)
def collector_bare(context: typer.Context, settings: BareSettings = None) -> None:
    """Run the collector by the form of the command before 0.3, without `serve`."""
    if settings is not None and context.invoked_subcommand is None:
        typer.echo(_BARE.format("collector"), err=True)
        collector_serve(settings)


@collector.command("serve")
def collector_serve(settings: SettingsFile) -> None:
    """Run the collector: receive telemetry reports by UDP, serve the state of the network."""
    from collectors import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@controller.callback(invoke_without_command=True)
def controller_bare(context: typer.Context, settings: BareSettings = None) -> None:
    """Run the controller by the form of the command before 0.3, without `serve`."""
    if settings is not None and context.invoked_subcommand is None:
        typer.echo(_BARE.format("controller"), err=True)
        controller_serve(settings)


@controller.command("serve")
def controller_serve(settings: SettingsFile) -> None:
    """Run the controller daemon: reconcile the tables of all switches over P4Runtime."""
    from controller.network import process  # noqa: PLC0415

    run_daemon(process.PROCESS, settings)


@controller.command("status")
def controller_status(
    server: Annotated[str | None, typer.Option("--server", metavar="ADDRESS", help="Address of its status.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show whether the switches hold what they should and, of a controller in a pair, its role."""
    import asyncio  # noqa: PLC0415 - as the rest, only for this command

    from controller.apps.cli.shared.daemon_rows import role_rows  # noqa: PLC0415
    from controller.network.status.service import ADDRESS, ControllerClient, ControllerClientSettings  # noqa: PLC0415
    from controller.network.status.values import ControllerStatus  # noqa: PLC0415

    async def ask() -> ControllerStatus:
        async with ControllerClient(ControllerClientSettings(address=server or ADDRESS)) as client:
            return await client.status()

    now = asyncio.run(ask())
    figures = {
        "switches": now.switches,
        "reconciled": len(now.live),
        "settled": "yes" if now.settled else "no",
        "route set": now.wanted_version,
        "pending entries": now.pending_entries,
        "batches written": now.writes,
    }
    problems = [(f"switch {problem.switch}", problem.problem) for problem in now.problems]
    show(("what", "value"), [*role_rows(now.standby), *figures.items(), *problems], form)
