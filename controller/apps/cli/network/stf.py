"""`millrace stf`: tests of p4c's simple test framework."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dataplane.errors import ConfigError, ProgramError, in_one_line
from dataplane.given import read_given_text
from dataplane.stf import PipelineName
from dataplane.switch.tracing.showing.formats import TraceFormat

if TYPE_CHECKING:
    from dataplane.stf.compare import Difference
    from dataplane.stf.run import Outcome
    from dataplane.switch.tracing.steps import PacketTrace

PASSED, FAILED, REFUSED = 0, 1, 2


def stf(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM.json", help="bmv2 JSON from p4c.")],
    p4info: Annotated[Path, typer.Argument(metavar="P4INFO", help="The program's P4Info, text or binary.")],
    test: Annotated[Path, typer.Argument(metavar="TEST.stf", help="STF test file.")],
    pipeline: Annotated[PipelineName, typer.Option(help="Pipeline that executes the program.")] = PipelineName.COMPILED,
    *,
    trace: Annotated[bool, typer.Option("--trace", help="Explain each packet (uses the interpreter).")] = False,
    trace_format: Annotated[TraceFormat, typer.Option(help="Format of explanations.")] = TraceFormat.TEXT,
) -> None:
    """Run a test of p4c's simple test framework in virtual time.

    Exits 0 if it passes, 1 with the differing packet if not, 2 if the program is rejected or the test
    is malformed.
    """
    try:
        outcome = _run(program, p4info, test, pipeline, trace_format if trace else None)
    except (ProgramError, ConfigError) as error:
        typer.echo(in_one_line(f"millrace: {error}"), err=True)
        raise typer.Exit(REFUSED) from error
    for note in outcome.notes:
        typer.echo(note)
    for difference in outcome.differences:
        _show(difference, test)
    if outcome.differences:
        if outcome.drops:
            typer.echo("dropped: " + ", ".join(f"{name} {number}" for name, number in sorted(outcome.drops.items())))
        raise typer.Exit(FAILED)
    typer.echo("passed")


def _run(program: Path, p4info: Path, test: Path, pipeline: PipelineName, trace_format: TraceFormat | None) -> Outcome:
    from dataplane.program.loader import load_program  # noqa: PLC0415
    from dataplane.stf.parse import parse_stf  # noqa: PLC0415
    from dataplane.stf.pipelines import pipeline_factory  # noqa: PLC0415
    from dataplane.stf.run import run_stf  # noqa: PLC0415
    from dataplane.switch.tracing.showing.show import shown  # noqa: PLC0415

    try:
        text = read_given_text(test)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(getattr(error, "strerror", None) or "is not text", file=str(test)) from error
    statements = parse_stf(text, str(test))
    loaded = load_program(program, p4info)
    if trace_format is None:
        return run_stf(loaded, statements, str(test), pipeline_factory(pipeline))

    def explain(line: int, trace: PacketTrace) -> None:
        if trace_format is TraceFormat.TEXT:
            typer.echo(f"{test}:{line}:")
        typer.echo(shown(trace, trace_format))

    return run_stf(loaded, statements, str(test), on_trace=explain)


def _show(difference: Difference, test: Path) -> None:
    where = f"{test}:{difference.line}: "
    if difference.port is not None:
        where += f"port {difference.port}: "
    typer.echo(where + difference.problem)
    if difference.port is not None:
        typer.echo(f"  expected {'nothing' if difference.expected is None else difference.expected}")
        typer.echo(f"  got      {'nothing' if difference.got is None else difference.got.hex()}")
