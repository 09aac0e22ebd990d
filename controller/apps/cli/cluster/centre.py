"""`millrace centre`: the agent of a compute centre."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.common import SettingsFile, run_daemon
from controller.apps.cli.shared.output import Format, FormatOption
from controller.apps.cli.shared.output import show as show_rows

if TYPE_CHECKING:
    from controller.apiserver.resources.centre import UnitType

centre = typer.Typer(name="centre", help="Run a centre's tasks; show a centre.", no_args_is_help=True)


@centre.callback()
def _centre() -> None:
    """Run the tasks dispatched to a compute centre; show one."""


@centre.command()
def serve(settings: SettingsFile) -> None:
    """Run a centre's agent: it divides resources into units, reports them, and runs tasks dispatched to them."""
    from controller.workloads.centres import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@centre.command()
def show(
    name: Annotated[str, typer.Argument(metavar="CENTRE")],
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Show a compute centre: its units, what they run, and the corrections learned from SQL tasks."""
    from controller.apiserver.resources import Centre  # noqa: PLC0415

    with client_of(address) as client:
        status = client.of(Centre).get(name).status
    factors = ", ".join(f"{each.operator} x {each.factor:.3g}" for each in status.corrections)
    types = ", ".join(f"{each.task_type} x {each.factor:.3g}" for each in status.type_corrections)
    rows = [
        ("ready", "yes" if status.ready else status.reason or "no"),
        ("engine", status.engine),
        ("hosts", ", ".join(status.hosts) or None),
        *((f"units of {unit.name}", _unit(unit)) for unit in status.units),
        *((f"kernels on {unit.name}", ", ".join(unit.operators) or "none") for unit in status.units),
        ("corrections", factors and f"version {status.corrections_version}: {factors}"),
        ("of types of tasks", types),
        ("notes", "; ".join(status.notes) or None),
    ]
    show_rows(("what", "value"), (row for row in rows if row[1]), form)


def _unit(unit: UnitType) -> str:
    request = unit.unit
    parts = [f"{unit.count}, each with {request.cpu_milli / 1000:g} cores"]
    if request.memory_bytes:
        parts.append(f"{request.memory_bytes / 1e9:.3g} GB")
    parts += [f"{need.count} {'|'.join(need.kinds)}" for need in request.devices]
    return ", ".join(parts)
