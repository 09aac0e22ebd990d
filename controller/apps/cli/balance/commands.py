"""The commands of `millrace balance`."""

from __future__ import annotations

import typer

from controller.apps.cli.balance.driving import drive, levers
from controller.apps.cli.balance.example import example
from controller.apps.cli.balance.gains import gains
from controller.apps.cli.balance.history import history
from controller.apps.cli.balance.learn import learn
from controller.apps.cli.balance.setting import report, set_pool
from controller.apps.cli.balance.status import status
from controller.apps.cli.balance.trying import try_controllers
from controller.apps.cli.balance.tune import tune
from controller.apps.cli.balance.whatif import whatif
from controller.apps.cli.common import SettingsFile, log_to_stderr, ready


def serve(settings: SettingsFile) -> None:
    """Run the management service: units of pools move from holders that free them to those that ask."""
    from controller.balance import process  # noqa: PLC0415

    log_to_stderr("balance")
    process.run(process.load_settings(settings), ready("balance"))


balance = typer.Typer(
    name="balance",
    help="Transfer and compute load of units kept even by feedback: gains, rules, levers, the pool's service.",
    no_args_is_help=True,
)


balance.command()(drive)
balance.command()(example)
balance.command()(gains)
balance.command()(learn)
balance.command()(levers)
balance.command()(serve)
balance.command("try")(try_controllers)
balance.command()(tune)
balance.command()(whatif)
balance.command()(status)
balance.command("set")(set_pool)
balance.command()(report)
balance.command()(history)
