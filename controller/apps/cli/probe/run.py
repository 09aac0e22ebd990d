"""`millrace probe run`: run a probe task locally, as a centre would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Format, FormatOption, show

if TYPE_CHECKING:
    from controller.probing.running.results import RunResult
    from controller.probing.values import ProbeTask


_ENDINGS: Final = (".yaml", ".yml", ".json")

Source = Annotated[str, typer.Argument(metavar="PROBE", help="A file (.json, .yaml), or a name in the API server.")]


def probe_of(source: str, address: str | None) -> ProbeTask:
    """Return the probe task in a file, or in the store under that name."""
    from controller.probing import files  # noqa: PLC0415

    if Path(source).suffix in _ENDINGS:
        return files.load(Path(source))
    from controller.apiserver.resources import ProbeTask as Resource  # noqa: PLC0415

    with client_of(address) as client:
        stored = client.of(Resource).get(source)
    return files.of_spec(source, stored.spec)


@slow("running the probe")
def run(  # noqa: PLR0917 - a command line's options
    source: Source,
    units: Annotated[
        str, typer.Option(metavar="N[,N...]", help="Numbers of units, such as 1,2,4; one run each.")
    ] = "1",
    cores: Annotated[int, typer.Option(min=1, max=4096, help="Cores of one unit.")] = 1,
    repeat: Annotated[int, typer.Option(min=1, max=10_000, help="Runs, after each kernel has warmed up.")] = 5,
    at_least: Annotated[float, typer.Option(parser=in_seconds(0, 3600), help="Minimum total time of kernels.")] = 0.25,
    deadline: Annotated[
        float, typer.Option(parser=in_seconds(0.1, 86_400), help="Time after which it counts as hanging.")
    ] = 300.0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the full results as JSON.")
    ] = None,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Run a probe task here, pinned to its units' cores; show run times and errors, overall and per kernel."""
    from controller.probing.errors import ProbeError  # noqa: PLC0415
    from controller.probing.running import trying  # noqa: PLC0415
    from controller.probing.running.report import Order  # noqa: PLC0415

    probe = probe_of(source, address)
    counts = _counts(units)
    results = []
    for count in counts:
        result = trying.run(probe, Order(count, count * cores, repeat, deadline, at_least))
        if result.problem:
            raise ProbeError(f"{probe.name} on {count} units: {result.outcome.value}: {result.problem}")
        results.append(result)
        if out is not None:
            _keep(out if len(counts) == 1 else out.with_stem(f"{out.stem}-{count}"), result)
    show(
        ("units", "what", "runs", "mean s", "+-", "best s", "steady s", "error", "tolerance"),
        (row for result in results for row in _rows(probe, result)),
        form,
    )
    if form is Format.TABLE:
        for result in results:
            typer.echo(_costs(result), err=True)


def _rows(probe: ProbeTask, result: RunResult) -> Iterator[tuple[object, ...]]:
    """Yield the run's line, and one for each use with the seconds of one execution."""
    whole = [repetition.run_time_s for repetition in result.repetitions]
    errors = [max(repetition.accuracies.values(), default=0.0) for repetition in result.repetitions]
    yield (result.units, probe.name, len(whole), *_figures(whole), None, f"{max(errors):.2g}", None)
    for use in probe.uses:
        times = [time_s for repetition in result.repetitions for time_s in repetition.kernels_s[use.name]]
        error = max(repetition.accuracies[use.name] for repetition in result.repetitions)
        steady_s = result.steady_s.get(use.name)
        steady = None if steady_s is None else f"{steady_s:.4g}"
        yield (result.units, use.name, len(times), *_figures(times), steady, f"{error:.2g}", f"{use.tolerance:g}")


def _figures(times: list[float]) -> tuple[str, str | None, str]:
    return f"{fmean(times):.4g}", f"{stdev(times):.2g}" if len(times) > 1 else None, f"{min(times):.4g}"


def _costs(result: RunResult) -> str:
    parts = (
        ("start", result.start_s),
        ("data", result.prepare_s),
        ("warm-up", result.warm_up_s),
        ("all", result.wall_s),
    )
    times = ", ".join(f"{name} {seconds:.2g} s" for name, seconds in parts if seconds is not None)
    memory = "" if result.peak_memory_bytes is None else f"; at most {result.peak_memory_bytes / (1 << 20):.0f} MiB"
    return f"on {result.units} units: {times}{memory}"


def _keep(path: Path, result: RunResult) -> None:
    import msgspec  # noqa: PLC0415

    from controller.probing.errors import ProbeError  # noqa: PLC0415

    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror}") from error


def _counts(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() and 1 <= int(word) <= 4096 for word in words):
        raise typer.BadParameter(f"{text!r}: expected numbers of units, 1 to 4096, such as 1,2,4", param_hint="--units")
    return tuple(dict.fromkeys(int(word) for word in words))
