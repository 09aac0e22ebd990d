"""`millrace telemetry replay`: a capture of reports run through a collector, with a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Format, OneFormat, show, show_one
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from collectors.ingest.replay import Replayed
    from collectors.process import CollectorProcessSettings
    from collectors.values import CollectorStatus

_SUMMARIES = {
    "reporters": """
        select node_id, any_value(node) as node, sum(received) as received, sum(lost) as lost, sum(late) as late,
               sum(duplicate) as twice, sum(restarts) as restarts
        from reporters group by node_id order by node_id""",
    "links": """
        select src || '->' || dst as link, sum(samples) as samples,
               round(sum(delay_mean_ns::double * samples) / sum(samples) / 1e6, 3) as mean_ms,
               round(max(delay_p99_ns) / 1e6, 3) as greatest_p99_ms,
               round(max(queue_max_frames), 1) as greatest_queue,
               round(max(utilisation_max) * 100, 1) as greatest_used_percent,
               round(max(loss) * 100, 3) as greatest_loss_percent
        from links where samples > 0 group by src, dst order by samples desc, link""",
    "flows": """
        select coalesce(src_host, src) || ':' || src_port as "from", coalesce(dst_host, dst) || ':' || dst_port as "to",
               switches, round(avg(delay_ns) / 1e6, 3) as mean_ms, max(rate_bps) // 1000 as greatest_kbit_s
        from paths group by all order by greatest_kbit_s desc nulls last, 1, 2""",
    "drops": """
        select node, reason, sum(packets) as packets from drops group by all order by packets desc, node, reason""",
    "jobs": """
        select job, node, sum(items)::bigint as items, sum(repeated)::bigint as sent_again,
               max(cells_used) as most_cells, round(max(wait_p99_ns) / 1e6, 3) as greatest_p99_ms,
               any_value(waits_for) as waits_for
        from jobs left join (
            select job, node, arg_max(child, caused) as waits_for
            from (select job, node, child, sum(wait_caused_ns) as caused from job_children group by job, node, child)
            group by job, node
        ) using (job, node)
        group by job, node order by job, node""",
    "events": """
        select time, phase, rule, subject, figure, value, threshold from events order by time""",
}
"""Queries for the summaries of a capture's history."""


@slow("replaying")
def replay(
    capture: Annotated[Path, typer.Argument(metavar="FILE", help="pcap or pcapng with the frames of the reports.")],
    settings: Annotated[
        Path | None,
        typer.Option("--settings", "-s", metavar="FILE", help="The collector's settings: topology, rules and so on."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="SPEC", help="Topology instead of settings: a file, name or family."),
    ] = None,
    history: Annotated[
        Path | None, typer.Option("--history", "-d", metavar="FOLDER", help="Write the history here, for queries.")
    ] = None,
    form: OneFormat = Format.TABLE,
) -> None:
    """Replay a capture of reports through a collector, in the capture's time, and print a summary."""
    if (settings is None) == (topology is None):
        raise typer.BadParameter("give either --settings or --topology")
    with _folder(history) as folder:
        result, status = _run(capture, _settings(settings, topology), folder)
        if form is Format.JSON:
            show_one(_fields(result, status, folder))
            return
        span_s = (result.ended_ns - result.began_ns) / NS_PER_S
        typer.echo(
            f"frames: {result.frames} in {span_s:.3f} s\nbroken frames: {result.broken}\nreports: {result.reports}"
        )
        for name, count in sorted(status.counters.items()):
            if name not in {"reports", "records"}:
                typer.echo(f"{name}: {count}")
        if status.last_problem is not None:
            typer.echo(f"last problem: {status.last_problem}")
        _summarise(folder)


@contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    if wanted is not None:
        yield wanted
        return
    with TemporaryDirectory(prefix="millrace-replay") as name:
        yield Path(name)


def _settings(file: Path | None, topology: str | None) -> CollectorProcessSettings:
    from collectors.process import CollectorProcessSettings, load_settings  # noqa: PLC0415

    return CollectorProcessSettings(topology=topology or "") if file is None else load_settings(file)


def _run(capture: Path, settings: CollectorProcessSettings, folder: Path) -> tuple[Replayed, CollectorStatus]:
    from collectors.replay_history import replay_into  # noqa: PLC0415

    return replay_into(folder, capture, settings, lambda line: typer.echo(f"millrace telemetry: {line}", err=True))


def _fields(result: Replayed, status: CollectorStatus, folder: Path) -> dict[str, object]:
    """Return all results as one object."""
    counts = {name: count for name, count in sorted(status.counters.items()) if name not in {"reports", "records"}}
    tables = {
        name: [dict(zip(columns, row, strict=True)) for row in rows] for name, columns, rows in _summaries(folder)
    }
    return {
        "frames": result.frames,
        "broken_frames": result.broken,
        "reports": result.reports,
        "began_ns": result.began_ns,
        "ended_ns": result.ended_ns,
        "counters": counts,
        "last_problem": status.last_problem,
        **tables,
    }


def _summaries(folder: Path) -> Iterator[tuple[str, Sequence[str], list[tuple[object, ...]]]]:
    """Yield each summary of a history: its name, columns and rows."""
    from collectors.history.query import query  # noqa: PLC0415

    for name, statement in _SUMMARIES.items():
        answer = query(folder, statement)
        yield (
            name,
            answer.columns,
            [
                row
                for batch in answer.batches
                for row in zip(*(part.to_pylist() for part in batch.columns), strict=True)
            ],
        )


def _summarise(folder: Path) -> None:
    for name, columns, rows in _summaries(folder):
        if rows:
            typer.echo(f"\n{name}")
            show([column.replace("_", " ") for column in columns], rows, Format.TABLE)
