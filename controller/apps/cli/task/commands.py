"""The commands of `millrace task`, one file each."""

from __future__ import annotations

import typer

from controller.apps.cli.task.cancel import cancel
from controller.apps.cli.task.costs import costs
from controller.apps.cli.task.explain import explain
from controller.apps.cli.task.list import list_
from controller.apps.cli.task.logs import logs
from controller.apps.cli.task.show import show
from controller.apps.cli.task.submit import submit

task = typer.Typer(
    name="task", help="Run programs at compute centres: submit, list and explain tasks.", no_args_is_help=True
)

task.command()(submit)
task.command("list")(list_)
task.command()(show)
task.command()(logs)
task.command()(explain)
task.command("why", hidden=True, deprecated="Use `explain`.")(explain)  # type: ignore[arg-type]
task.command()(cancel)
task.command()(costs)
