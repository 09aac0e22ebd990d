"""`millrace scheduler`: the daemon, explanations of its decisions, and the same policies in virtual time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.learning.compare import compare
from controller.apps.cli.learning.evaluate import evaluate
from controller.apps.cli.learning.standing import status
from controller.apps.cli.learning.train import train
from controller.apps.cli.shared.amounts import in_bytes
from controller.apps.cli.shared.common import SettingsFile, run_daemon
from controller.apps.cli.shared.output import Format, FormatOption, show
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.apiserver.resources import Decision
    from controller.scheduling.simulation.summary import Summary, Times

scheduler = typer.Typer(
    name="scheduler", help="Run the scheduler; explain and simulate placements.", no_args_is_help=True
)

scheduler.command()(train)
scheduler.command()(evaluate)
scheduler.command()(compare)
scheduler.command()(status)

_NODE_COLUMNS = ("node", "points", "policy", "reason")


@scheduler.command()
def serve(settings: SettingsFile) -> None:
    """Run the scheduler: place the API server's pending pods."""
    from controller.scheduling import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@scheduler.command()
def extend(settings: SettingsFile) -> None:
    """Answer a Kubernetes scheduler's extender calls: filter, prioritize, preempt, bind, by the same policies."""
    from controller.scheduling.extender import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@scheduler.command()
def explain(
    pod: Annotated[str, typer.Argument(help="Name of a pod.")],
    api: Annotated[str | None, typer.Option(metavar="ADDRESS", help="The API server.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the newest decision about a pod: where it runs or why it waits, with each node's reasons."""
    from controller.apiserver.client import SyncApiClient, find_place  # noqa: PLC0415
    from controller.apiserver.resources import Pod  # noqa: PLC0415

    with SyncApiClient(find_place(api)) as client:
        resource = client.of(Pod).get(pod)
        decision = _decision_about(client, pod, resource.status.decision)
    if decision is None:
        typer.echo(f"{pod}: {resource.status.phase}: no decision yet", err=True)
        raise typer.Exit(1)
    if form is Format.TABLE:
        spec = decision.spec
        typer.echo(f"{pod}: {resource.status.phase}: {spec.outcome} by {spec.scheduler}, profile {spec.profile}")
        typer.echo(spec.reason)
    show(_NODE_COLUMNS, _node_rows(decision), form)


@scheduler.command()
def simulate(  # noqa: PLR0917 - a command line's options
    workload: Annotated[
        list[str],
        typer.Option(
            "--workload", "-w", metavar="KIND:...", help="swf:FILE, openb:FILE, spotri:FILE, batch:tasks=100, layers:."
        ),
    ],
    topology: Annotated[
        str | None, typer.Option(metavar="FILE", help="Topology: hosts with cores, and their network.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Use an openb list of nodes, without a network.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", "-s", metavar="FILE", help="Scheduler settings with profiles.")
    ] = None,
    profile: Annotated[str, typer.Option(metavar="NAME", help="Profile to use.")] = "default",
    order: Annotated[
        str, typer.Option(metavar="overtaking|strict", help="Let later work overtake, or queue strictly.")
    ] = ("overtaking"),
    spreading: Annotated[
        str, typer.Option(metavar="hash|split", help="Send a transfer on one path, or split it.")
    ] = "hash",
    edge_bytes: Annotated[int, typer.Option(parser=in_bytes(), help="Data of edges that give none.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of drawn workloads and of paths.")] = 0,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a row per task: .csv, .parquet or .json.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Replay work on a cluster in virtual time, by the daemon's policies, and show the results."""
    from controller.scheduling.pods import PodProfileSettings  # noqa: PLC0415
    from controller.scheduling.simulation import command  # noqa: PLC0415

    if settings is not None:
        from controller.scheduling.process import load_settings  # noqa: PLC0415
    profiles = (PodProfileSettings(),) if settings is None else load_settings(settings).profiles
    wanted = command.SimulateOptions(
        tuple(workload), topology, nodes, profiles, profile, order, spreading, edge_bytes, seed, trace
    )
    show(("what", "value", "unit"), _summary_rows(command.run(wanted, partial(typer.echo, err=True))), form)


def _decision_about(client: object, pod: str, name: str | None) -> Decision | None:
    """Return the decision that bound a pod, else the newest about it or its group."""
    from controller.apiserver.client import SyncApiClient  # noqa: PLC0415
    from controller.apiserver.resources import Decision  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    assert isinstance(client, SyncApiClient)
    decisions = client.of(Decision)
    if name is not None:
        try:
            return decisions.get(name)
        except NotFoundError:
            pass
    about = [decision for decision in decisions.list().items if pod in decision.spec.subjects]
    return max(about, key=lambda decision: decision.metadata.revision, default=None)


def _node_rows(decision: Decision) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for score in decision.spec.scores:
        for reason in score.reasons:
            policy, _, text = reason.partition(": ")
            rows.append((score.node, round(score.parts.get(policy, 0)), policy, text))
    for refusal in decision.spec.refused:
        rows += [(node, None, refusal.policy, refusal.reason) for node in refusal.nodes]
    return rows


def _summary_rows(summary: Summary) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [(state, count, "tasks") for state, count in summary.states.items()]
    rows.append(("left out", summary.left_out.total(), "tasks"))
    rows += [(f"left out: {reason}", count, "tasks") for reason, count in sorted(summary.left_out.items())]
    rows += [("makespan", summary.makespan_ns / NS_PER_S, "s")]
    for name in ("waiting", "queued", "transfer", "response"):
        rows += _time_rows(name, getattr(summary, name))
    rows += [(f"{name} held", 100 * share, "%") for name, share in summary.utilisation.items()]
    rows.append(("transfers", summary.transfers, ""))
    if summary.busiest_link:
        rows.append((f"load of {summary.busiest_link}", 100 * summary.busiest_link_load, "%"))
    return rows


def _time_rows(name: str, times: Times) -> list[tuple[object, ...]]:
    rows = (("mean", times.mean_ns), ("p50", times.p50_ns), ("p95", times.p95_ns), ("p99", times.p99_ns))
    return [(f"{name}, {which}", ns / NS_PER_S, "s") for which, ns in rows]
