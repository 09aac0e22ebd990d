"""`millrace config`: a daemon's settings, their schema, and checks of settings files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.output import Format, FormatOption
from controller.apps.cli.shared.output import show as show_rows
from dataplane.errors import ConfigError

if TYPE_CHECKING:
    import msgspec

config = typer.Typer(
    name="config", help="Show and check daemons' settings; print their JSON schema.", no_args_is_help=True
)

SETTINGS: Final = {
    "alto": ("controller.cluster.alto.settings", "AltoSettings"),
    "api": ("controller.apiserver.settings", "ApiSettings"),
    "balance": ("controller.balance.settings", "BalanceSettings"),
    "balance-drive": ("controller.balance.running.process", "RunSettings"),
    "builder": ("controller.scheduling.tasks.settings", "BuilderSettings"),
    "centre": ("controller.workloads.centres.selecting", "ServedCentre"),
    "collector": ("collectors.process", "CollectorProcessSettings"),
    "controller": ("controller.network.daemon_settings", "DaemonSettings"),
    "demo": ("controller.apps.demo.settings", "DemoSettings"),
    "extender": ("controller.scheduling.extender.process", "ExtenderSettings"),
    "fabric": ("dataplane.fabric.live.settings", "FabricSettings"),
    "memory": ("controller.memory.host.settings", "HostSettings"),
    "memory-pool": ("controller.memory.pool.settings", "MemoryPoolSettings"),
    "node": ("controller.workloads.nodes.process", "NodeSettings"),
    "paths": ("controller.network.paths.settings", "PathServerSettings"),
    "placement": ("controller.workloads.placement.settings", "PlacementSettings"),
    "scheduler": ("controller.scheduling.settings", "SchedulerSettings"),
    "up": ("controller.apps.up.settings", "UpSettings"),
}
"""Schema of each settings file, by name."""

Daemon = Annotated[str, typer.Argument(metavar="DAEMON", help=f"One of {', '.join(SETTINGS)}.")]


@config.command()
def show(
    daemon: Daemon,
    settings: Annotated[
        Path | None, typer.Option("--settings", "-s", metavar="FILE", help="Settings file; default: only defaults.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show all settings: the value of each, its line in the file or "default", and its meaning."""
    from dataplane.config.shown import defaults_of, settings_of  # noqa: PLC0415

    schema = _schema(daemon)
    entries = defaults_of(schema) if settings is None else settings_of(settings, schema)
    rows = (
        (setting.key, _written(setting.value) if form is Format.TABLE else setting.value, setting.origin, setting.about)
        for setting in entries
    )
    show_rows(("key", "value", "from", "meaning"), rows, form)


@config.command()
def schema(daemon: Daemon) -> None:
    """Print a settings file's JSON schema, for editors."""
    from dataplane.config.json_schema import json_schema  # noqa: PLC0415

    typer.echo(json.dumps(json_schema(_schema(daemon)), indent=2, ensure_ascii=False))


@config.command()
def check(daemon: Daemon, file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML, YAML or JSON.")]) -> None:
    """Check a settings file; report the first error with file, line and key.

    Files that it names (topology, certificates, tokens, secrets, programs) are read as by the daemon; `up` is planned
    as at its start. Nothing is written, listened on or connected to.
    """
    from dataplane.config import load  # noqa: PLC0415

    if daemon == "up":
        from controller.apps.up import command  # noqa: PLC0415

        command.check(file)
    else:
        from controller.apps.cli.config_files import check_named  # noqa: PLC0415 - loads TLS

        check_named(load(file, _schema(daemon)), file)
    typer.echo(f"{file}: valid {daemon} settings")


def _schema(daemon: str) -> type[msgspec.Struct]:
    from dataplane.config.suggestions import did_you_mean  # noqa: PLC0415

    if daemon not in SETTINGS:
        raise ConfigError(f"is not a daemon with settings{did_you_mean(daemon, SETTINGS)}", file=daemon)
    module, name = SETTINGS[daemon]
    schema: type[msgspec.Struct] = getattr(importlib.import_module(module), name)
    return schema


def _written(value: object) -> str:
    """Return a value as written in a file."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
