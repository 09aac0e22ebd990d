"""The commands of `millrace pod`, one file each."""

from __future__ import annotations

import typer

from controller.apps.cli.pod.apply import apply
from controller.apps.cli.pod.delete import delete
from controller.apps.cli.pod.exec import exec_
from controller.apps.cli.pod.explain import explain
from controller.apps.cli.pod.list import list_
from controller.apps.cli.pod.logs import logs
from controller.apps.cli.pod.schema import schema
from controller.apps.cli.pod.show import show
from controller.apps.cli.pod.top import top

pod = typer.Typer(name="pod", help="Run containers: manifests, placement, logs, commands.", no_args_is_help=True)

pod.command()(apply)
pod.command("list")(list_)
pod.command()(show)
pod.command()(explain)
pod.command("why", hidden=True, deprecated="Use `explain`.")(explain)  # type: ignore[arg-type]
pod.command()(logs)
pod.command("exec", context_settings={"allow_interspersed_args": False})(exec_)
pod.command()(delete)
pod.command()(top)
pod.command()(schema)
