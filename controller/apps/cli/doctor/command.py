"""`millrace doctor`: the probes' findings as a table."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

import typer

from controller.apps.cli.shared.common import working
from controller.apps.cli.shared.output import Format, FormatOption, show

_COLUMNS: Final = ("what", "state", "found", "needed for", "remedy")


def doctor(
    form: FormatOption = Format.TABLE,
    problems: Annotated[bool, typer.Option("--problems", help="Only what is missing or limited.")] = False,
) -> None:
    """Try what Millrace can use on this machine; exit 1 if the base product cannot run. Changes nothing."""
    from controller.apps.cli.doctor import kernel, machine, packages, programs  # noqa: PLC0415
    from controller.apps.cli.doctor.values import State  # noqa: PLC0415

    with working("trying what this machine can do"):
        findings = [finding for part in (packages, machine, kernel, programs) for finding in part.probe()]
    shown = [finding for finding in findings if finding.state is not State.OK] if problems else findings
    rows = ((each.purpose.what, str(each.state), each.text, each.purpose.needed_for, each.remedy) for each in shown)
    show(_COLUMNS, rows, form)
    fatal = [finding.purpose.what for finding in findings if finding.is_fatal]
    if form is Format.TABLE:
        counts = Counter(finding.state for finding in findings)
        summary = ", ".join(f"{counts[state]} {state}" for state in State)
        typer.echo(f"{summary}. " + (f"Required: {', '.join(fatal)}." if fatal else "The base product can run."))
    if fatal:
        raise typer.Exit(1)
