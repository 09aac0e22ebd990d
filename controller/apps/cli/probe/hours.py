"""`millrace probe hours`: good hours of a centre's network."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_days
from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show, utc
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.resources import ProbeResult
    from controller.probing.hours import GoodHours, Hour, PathSample
    from controller.probing.values import ProbeTask

_COLUMNS: Final = (
    *("hour", "state", "runs", "run time s", "network s", "compute s", "free Mbit/s", "delay ms", "reason"),
)


@slow("forecasting")
def hours(  # noqa: PLR0917 - a command line's options
    centre: Annotated[str, typer.Argument(help="Name of a centre.")],
    probe: Annotated[str | None, typer.Option(help="Probe task; default: the one measured most often.")] = None,
    units: Annotated[int | None, typer.Option(help="Number of units; default: the one measured most often.")] = None,
    days: Annotated[float, typer.Option(parser=in_days(0.01), help="Window in days, up to now.")] = 7.0,
    history: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Also use a collector's history.")] = None,
    topology: Annotated[
        str | None, typer.Option("--topology", "-t", metavar="TOPOLOGY", help="Topology of the history.")
    ] = None,
    source: Annotated[str | None, typer.Option("--from", metavar="HOST", help="Host that data comes from.")] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (.png or .svg).")] = None,
    address: Address = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the good hours of the day (UTC) at a centre, sudden changes, and the current state."""
    from controller.probing.evaluation.history import read_results  # noqa: PLC0415
    from controller.probing.hours import good_hours, probe_samples  # noqa: PLC0415

    if len({history is None, topology is None, source is None}) > 1:
        raise typer.BadParameter("--history, --topology and --from require each other")
    now_s = time.time()
    start_s = now_s - days * 86_400
    with client_of(address) as client:
        results = read_results(client, centre=centre, probe=probe, since_ns=int(start_s * NS_PER_S))
        path = () if history is None else _way(client, centre, history, topology or "", source or "", start_s, now_s)
        name = probe or _most_often(results)
        probes = _probes(client, name)
    samples = probe_samples([result for result in results if result.spec.probe == name], probes, units=units)
    if not samples and not path:
        typer.echo(f"no result of {probe or 'any probe'} at {centre} in the last {days:g} days", err=True)
        raise typer.Exit(1)
    good = good_hours(samples, path, now_s, window_s=days * 86_400)
    show(_COLUMNS, [_cells(hour) for hour in good.hours], form)
    for line in _lines(good):
        typer.echo(line, err=form is not Format.TABLE)
    if picture is not None:
        from controller.probing.hours.picture import draw_hours  # noqa: PLC0415

        draw_hours(f"{name or 'telemetry'} at {centre}", samples, path, good, picture)
        typer.echo(f"wrote {picture}", err=True)


def _most_often(results: Sequence[ProbeResult]) -> str | None:
    counts = Counter(result.spec.probe for result in results if result.status.runs)
    return max(counts, key=lambda name: (counts[name], name), default=None)


def _probes(client: SyncApiClient, name: str | None) -> dict[str, ProbeTask]:
    """Return the stored probe task, if any: its kernels separate network from compute time."""
    from controller.apiserver.resources import ProbeTask as Kept  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415
    from controller.probing.files import of_spec  # noqa: PLC0415

    if name is None:
        return {}
    try:
        return {name: of_spec(name, client.of(Kept).get(name).spec)}
    except NotFoundError:
        typer.echo(f"probe task {name} is not stored: the network's share of its time is unknown", err=True)
        return {}


def _way(  # noqa: PLR0917 - what the options say
    client: SyncApiClient, centre: str, history: Path, topology: str, source: str, start_s: float, end_s: float
) -> tuple[PathSample, ...]:
    from controller.apiserver.resources import Centre  # noqa: PLC0415
    from controller.probing.hours.telemetry import path_samples, ways  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    hosts = client.of(Centre).get(centre).status.hosts
    if not hosts:
        raise typer.BadParameter(f"{centre} names no hosts of the topology: telemetry does not apply")
    shape = load_topology(topology)
    paths = [path for host in hosts if host != source for path in ways(shape, source, host)]
    start, end = (datetime.fromtimestamp(moment, UTC) for moment in (start_s, end_s))
    return path_samples(history, paths, start, end) if paths else ()


def _cells(hour: Hour) -> Cells:
    return (
        f"{hour.hour:02}",
        str(hour.state),
        hour.samples,
        _rounded(hour.run_time_s, 1.0),
        _rounded(hour.network_s, 1.0),
        _rounded(hour.compute_s, 1.0),
        _rounded(hour.available_bps, 1e6),
        _rounded(hour.delay_ns, 1e6),
        hour.reason,
    )


def _rounded(value: float | None, unit: float) -> float | None:
    return None if value is None else float(f"{value / unit:.4g}")


def _lines(good: GoodHours) -> list[str]:
    lines = []
    for change in good.changes:
        at = utc(int(change.time_s * NS_PER_S))
        lines.append(f"{at:%Y-%m-%d %H:%M}: runs take {change.factor:.2f} times as long from here on: {change.cause}")
    lines.append(f"now {good.now}: {good.reason}")
    if (run_time := good.run_time_s) is not None:
        span = f"{run_time.low:.4g} to {run_time.high:.4g}"
        lines.append(f"the next run: {run_time.value:.4g} s ({span}), by {run_time.forecaster}")
    return lines
