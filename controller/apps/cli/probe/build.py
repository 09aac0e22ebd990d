"""`millrace probe build`: a probe task from a program, a query, an operator graph, or a hand-written file."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.probe.library import library_of
from controller.apps.cli.shared.amounts import in_seconds
from dataplane.given import read_given_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.cluster.operators import OperatorGraph
    from controller.probing.building import BuildSettings
    from controller.probing.library import KernelLibrary
    from controller.probing.values import ProbeTask

_GRAPHS: Final = (".yaml", ".yml", ".json")
_TRIAL_S: Final = 60.0
"""Deadline for each kernel's first run, besides the probe task's own limit."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Source of a probe task: a graph, and its operators' times in seconds if it was run."""

    graph: OperatorGraph
    seconds: Mapping[str, float] | None = None
    run_time_s: float | None = None
    is_program: bool = False


def build(  # noqa: PLR0917 - a command line's options
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="x.py, x.py:function or module:function (run once, traced), query.sql, an operator graph, or a"
            " hand-written kernel file (YAML or JSON).",
        ),
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Program argument.")] = None,
    task_type: Annotated[
        str, typer.Option("--task-type", "-t", help="Description; its words choose the kernels' category.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help=".json or .yaml; default: NAME.probe.json here.")
    ] = None,
    ratio: Annotated[int, typer.Option(min=1, help="Executions in the target per repetition.")] = 1000,
    small: Annotated[int, typer.Option(min=1, max=10_000, help="Keep counts up to this one unscaled.")] = 10,
    parallel: Annotated[
        bool, typer.Option("--parallel", help="The target uses more cores than its libraries' threads.")
    ] = False,
    apart: Annotated[bool, typer.Option("--apart", help="Build a probe task for each unconnected part.")] = False,
    device: Annotated[str, typer.Option(help="Device of the kernels: cpu, gpu, ...")] = "cpu",
    limit: Annotated[float, typer.Option(parser=in_seconds(0.01, 3600), help="Time limit on one unit.")] = 5.0,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Minimum similarity of a matching kernel.")] = 0.6,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Run each kernel once here to estimate the time.")
    ] = True,
    database: Annotated[Path | None, typer.Option(metavar="FILE", help="DuckDB file of the query.")] = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference/--no-reference",
            help="Run the program once more, untraced: store its CPU time and the probe's with the probe.",
        ),
    ] = True,
    store: Annotated[bool, typer.Option("--store", help="Also store it in the API server.")] = False,
    address: Address = None,
) -> None:
    """Build a probe task: a thousandth of its target's work, from kernels that resemble its operators."""
    from controller.probing.building import BuildSettings, Unlinked  # noqa: PLC0415
    from controller.probing.referencing import with_reference  # noqa: PLC0415

    settings = BuildSettings(
        ratio=ratio,
        small=small,
        unlinked=Unlinked.APART if apart else Unlinked.TOGETHER,
        device=_device(device),
        limit_s=limit,
        is_parallel=parallel,
    )
    library, has_reference = library_of(address), False
    probes = _expert(target, library, settings, arguments)
    if probes is None:
        source = _target(target, arguments or (), database)
        probes = _built(source, library, settings, task_type, threshold)
        has_reference = reference and check and not parallel and len(probes) == 1 and source.is_program
    for number, probe in enumerate(probes, 1):
        path = _path(out, probe, number if len(probes) > 1 else None)
        run_time_s = _checked(probe, settings) if check else None
        if has_reference:
            target_s = partial(_cpu_time_s, target, arguments or ())
            probe = with_reference(probe, target_s, deadline_s=_TRIAL_S + 2 * limit)  # noqa: PLW2901 - the same, measured
        _write(path, probe)
        took = "" if run_time_s is None else f", about {_seconds(run_time_s)} on one unit"
        typer.echo(f"{path}: {_summary(probe)}{took}")
        if store:
            _store(probe, run_time_s, address)


def _expert(
    target: str, library: KernelLibrary, settings: BuildSettings, arguments: Sequence[str] | None
) -> tuple[ProbeTask, ...] | None:
    """Return a hand-written file's probe task, None if the target is any other file."""
    from controller.probing import expert  # noqa: PLC0415

    path = Path(target)
    if path.suffix not in _GRAPHS or "kernels" not in _keys(path):
        return None
    if arguments:
        raise typer.BadParameter(f"{target} takes no arguments: {' '.join(arguments)}")
    return (expert.load(path, library, device=settings.device),)


def _keys(path: Path) -> frozenset[str]:
    """Return the keys at the top of a YAML or JSON file."""
    from dataplane.config import load  # noqa: PLC0415

    return frozenset(load(path, dict[str, Any]))


def _target(target: str, arguments: Sequence[str], database: Path | None) -> _Target:
    path = Path(target)
    if path.suffix in _GRAPHS:
        from controller.cluster.operators import load  # noqa: PLC0415

        return _Target(load(path))
    if path.suffix == ".sql":
        return _Target(_graph_of_sql(path, database))
    from controller.cluster.operators.tracing import trace_target  # noqa: PLC0415

    traced = trace_target(target, arguments)
    for problem in traced.problems:
        typer.echo(f"{target}: {problem}", err=True)
    return _Target(traced.graph, traced.seconds, traced.run_time_s, is_program=True)


def _cpu_time_s(target: str, arguments: Sequence[str]) -> float | None:
    """Return a program's CPU time, None if it does not finish or mostly waits."""
    from controller.cluster.operators.tracing import trace_target  # noqa: PLC0415

    timed = trace_target(target, arguments, is_watched=False, output=subprocess.DEVNULL)
    computes = not timed.problems and timed.cpu_time_s > timed.run_time_s / 2 > 0
    return timed.cpu_time_s if computes else None


def _graph_of_sql(path: Path, database: Path | None) -> OperatorGraph:
    from controller.cluster.operators.sql import graph_of_sql  # noqa: PLC0415
    from controller.probing.errors import ProbeError  # noqa: PLC0415

    try:
        return graph_of_sql(read_given_text(path), database, name=path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise ProbeError(f"{path}: {getattr(error, 'strerror', None) or 'is not text'}") from error


def _built(
    source: _Target, library: KernelLibrary, settings: BuildSettings, task_type: str, threshold: float
) -> tuple[ProbeTask, ...]:
    from controller.probing.building import of_target  # noqa: PLC0415

    probes, matches = of_target(
        source.graph,
        library.kernels(),
        settings,
        task_type=task_type,
        seconds=source.seconds,
        run_time_s=source.run_time_s,
        threshold=threshold,
    )
    for match in matches:
        if match.kernel is None:
            typer.echo(f"{match.operator}: {match.reason}", err=True)
    return probes


def _checked(probe: ProbeTask, settings: BuildSettings) -> float:
    """Estimate a probe task's run time on one unit by running each of its kernels once here."""
    from controller.probing import checking  # noqa: PLC0415
    from controller.probing.errors import ProbeError  # noqa: PLC0415
    from controller.probing.running import trying  # noqa: PLC0415
    from controller.probing.running.report import Order, Outcome  # noqa: PLC0415

    order = Order(units=1, cores=1, repeat=1, deadline_s=_TRIAL_S + 2 * settings.limit_s, at_least_s=0.0)
    result = trying.run(checking.trial(probe), order)
    if result.outcome is not Outcome.SUCCEEDED:
        raise ProbeError(f"{probe.name}: tried here: {result.outcome.value}: {result.problem}")
    found_s = {name: times[0] for name, times in result.repetitions[0].kernels_s.items()}
    return checking.check(probe, checking.tried_s(probe, found_s), settings)


def _path(out: Path | None, probe: ProbeTask, number: int | None) -> Path:
    from controller.probing.errors import ProbeError  # noqa: PLC0415

    if out is None:
        return Path(f"{probe.name}.probe.json")
    if out.suffix not in _GRAPHS:
        raise ProbeError(f"{out}: a probe task's name ends in .json or .yaml")
    return out if number is None else out.with_stem(f"{out.stem}-{number}")


def _write(path: Path, probe: ProbeTask) -> None:
    from controller.probing import files  # noqa: PLC0415
    from controller.probing.errors import ProbeError  # noqa: PLC0415

    try:
        path.write_text(files.dumps(probe, as_json=path.suffix == ".json"), encoding="utf-8")
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror}") from error


def _summary(probe: ProbeTask) -> str:
    kernels = ", ".join(f"{use.kernel} x {use.repetitions}" for use in probe.uses[:6])
    more = f" and {len(probe.uses) - 6} more" if len(probe.uses) > 6 else ""
    share = "" if probe.share_matched is None else f", {probe.share_matched:.1%} of the target's time or work"
    return f"{kernels}{more}; {len(probe.links)} links{share}"


def _store(probe: ProbeTask, run_time_s: float | None, address: str | None) -> None:
    from controller.apiserver.resources import Metadata  # noqa: PLC0415
    from controller.apiserver.resources import ProbeTask as Resource  # noqa: PLC0415
    from controller.apiserver.resources.probe_task import ProbeTaskStatus  # noqa: PLC0415
    from controller.probing.files import to_spec  # noqa: PLC0415

    resource = Resource(
        metadata=Metadata(name=probe.name), spec=to_spec(probe), status=ProbeTaskStatus(run_time_s=run_time_s)
    )
    with client_of(address) as client:
        client.of(Resource).create(resource)
    typer.echo(f"ProbeTask {probe.name} is stored")


def _device(word: str) -> Any:  # noqa: ANN401 - a DeviceKind, which is not imported before it is needed
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    try:
        return DeviceKind(word)
    except ValueError:
        kinds = ", ".join(kind.value for kind in DeviceKind)
        raise typer.BadParameter(f"{word!r} is not one of {kinds}", param_hint="--device") from None


def _seconds(value_s: float) -> str:
    return f"{value_s:.2g} s" if value_s >= 0.1 else f"{value_s * 1e3:.2g} ms"
