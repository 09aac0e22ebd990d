"""The commands of `millrace balance`, one file each."""

from __future__ import annotations

import typer

from controller.apps.cli.balance.driving import drive, levers
from controller.apps.cli.balance.example import example
from controller.apps.cli.balance.gains import gains
from controller.apps.cli.balance.history import history
from controller.apps.cli.balance.learn import learn
from controller.apps.cli.balance.serving import serve
from controller.apps.cli.balance.setting import report, set_pool
from controller.apps.cli.balance.status import status
from controller.apps.cli.balance.trying import try_controllers
from controller.apps.cli.balance.tune import tune
from controller.apps.cli.balance.whatif import whatif

balance = typer.Typer(
    name="balance",
    help="Balance units' transfer and compute load by feedback: gains, rules, levers, the pool's service.",
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
