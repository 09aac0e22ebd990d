"""`millrace switch`, `collector` and `controller`: the daemons of a network."""

from __future__ import annotations

import typer

from controller.apps.cli.common import SettingsFile, run_daemon

switch_command = typer.Typer()


@switch_command.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def switch(context: typer.Context) -> None:
    """Run a switch: a compiled P4 program between network devices, with P4Runtime; `show ADDRESS`: look into one."""
    if context.args[:1] == ["show"]:
        from controller.apps.cli.state.switch import switch_show  # noqa: PLC0415

        looking = typer.main.get_command(switch_show)
        with looking.make_context("show", context.args[1:], parent=context) as inner:
            looking.invoke(inner)
        return
    from dataplane.switch import process  # noqa: PLC0415

    raise typer.Exit(process.main(context.args))


def collector(settings: SettingsFile) -> None:
    """Run the collector: receive telemetry reports by UDP, serve the state of the network."""
    from collectors import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


def controller(settings: SettingsFile) -> None:
    """Run the controller daemon: reconcile the tables of all switches over P4Runtime."""
    from controller.network import process  # noqa: PLC0415

    run_daemon(process.PROCESS, settings)
