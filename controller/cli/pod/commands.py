"""The commands of `millrace pod`, one file each."""

from __future__ import annotations

import typer

from controller.cli.pod.apply import apply
from controller.cli.pod.delete import delete
from controller.cli.pod.exec import exec_
from controller.cli.pod.list import list_
from controller.cli.pod.logs import logs
from controller.cli.pod.schema import schema
from controller.cli.pod.show import show
from controller.cli.pod.top import top
from controller.cli.pod.why import why

pod = typer.Typer(name="pod", help="Run containers: scripts, places and why, logs, commands.", no_args_is_help=True)

pod.command()(apply)
pod.command("list")(list_)
pod.command()(show)
pod.command()(why)
pod.command()(logs)
pod.command("exec", context_settings={"allow_interspersed_args": False})(exec_)
pod.command()(delete)
pod.command()(top)
pod.command()(schema)
