"""`millrace pod why`: every decision about a pod, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from controller.cli.api import Address, client_of
from controller.cli.output import Format, FormatOption, show, utc
from controller.cli.pod.list import phase_of

if TYPE_CHECKING:
    from controller.api.resources import Decision, Pod
    from controller.api.resources.decision import DecisionSpec

_NAMED = 8
"""Nodes that a group of refusals names; JSON has all."""


def why(
    name: Annotated[str, typer.Argument(metavar="POD")],
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Show why a pod is where it is, or waits: which nodes were refused, how the others were scored, and before."""
    from controller.api.resources import Decision, Pod  # noqa: PLC0415

    with client_of(address) as client:
        pod = client.of(Pod).get(name)
        found = client.of(Decision).list(fields=f"about={name}").items
    decisions = sorted(found, key=lambda one: one.metadata.revision)
    if form is not Format.TABLE:
        columns = ("decision", "at", "outcome", "scheduler", "reason", "measured", "scores", "refused", "preempted")
        show(columns, map(_cells, reversed(decisions)), form)
        return
    if not decisions:
        _show_pod(pod)
        typer.echo("nothing was decided about it yet: no scheduler of its profile runs, or it is about to")
        return
    shown = next((one for one in decisions if one.metadata.name == pod.status.decision), decisions[-1])
    _show_pod(pod, shown.spec.reason)
    _show_decision(shown)
    _show_history(decisions)


def _show_pod(pod: Pod, decided: str = "") -> None:
    """Show where a pod is and why, but the reason of the decision, which comes below."""
    status = pod.status
    others = [reason for reason in status.reasons if reason != decided]
    where = "" if status.node is None else f" on {status.node}"
    reasons = f": {'; '.join(others)}" if others else ""
    typer.echo(f"{pod.metadata.name} is {phase_of(pod)}{where}{reasons}")
    if status.nominated is not None:
        typer.echo(f"room is made for it on {status.nominated}")
    location = pod.spec.location
    if location is not None:
        stated = ((part, getattr(location, part)) for part in ("node", "device", "device_kind"))
        typer.echo(f"its script states {', '.join(f'{part} {value}' for part, value in stated if value is not None)}")


def _show_decision(decision: Decision) -> None:
    spec = decision.spec
    typer.echo(f"{_when(decision)}: {spec.outcome} by {spec.scheduler}, profile {spec.profile}{_took(spec)}")
    typer.echo(spec.reason)
    network = _network(spec)
    if network:
        typer.echo(network)
    if spec.preempted:
        typer.echo(f"asked to go for it: {', '.join(spec.preempted)}")
    if spec.scores:
        policies = tuple(dict.fromkeys(policy for score in spec.scores for policy in score.parts))
        show(
            ("node", "points", *policies),
            ((score.node, score.total, *(score.parts.get(policy) for policy in policies)) for score in spec.scores),
            Format.TABLE,
        )
        reasons = [(score.node, *line.partition(": ")[::2]) for score in spec.scores for line in score.reasons]
        show(("node", "policy", "why"), reasons, Format.TABLE)
    if spec.refused:
        refusals = ((len(one.nodes), one.policy, one.reason, _names(one.nodes)) for one in spec.refused)
        show(("refused", "policy", "why", "nodes"), refusals, Format.TABLE)


def _show_history(decisions: Sequence[Decision]) -> None:
    if len(decisions) < 2:
        return
    typer.echo("decisions, the newest first:")
    rows = ((_when(one), one.spec.outcome, one.spec.scheduler, one.spec.reason) for one in reversed(decisions))
    show(("at (UTC)", "outcome", "scheduler", "reason"), rows, Format.TABLE)


def _cells(decision: Decision) -> tuple[object, ...]:
    import msgspec  # noqa: PLC0415

    spec = decision.spec
    scores = [msgspec.to_builtins(one) for one in spec.scores]
    refused = [msgspec.to_builtins(one) for one in spec.refused]
    return (
        decision.metadata.name,
        utc(decision.metadata.created_ns),
        spec.outcome,
        spec.scheduler,
        spec.reason,
        spec.measured,
        scores,
        refused,
        list(spec.preempted),
    )


def _when(decision: Decision) -> str:
    return utc(decision.metadata.created_ns).isoformat(" ", "milliseconds").removesuffix("+00:00")


def _took(spec: DecisionSpec) -> str:
    """Return how long it took, by the scheduler's own clock, as the end of a sentence."""
    if spec.begun_ns is None or spec.decided_ns is None:
        return ""
    return f", in {(spec.decided_ns - spec.begun_ns) / 1e6:.1f} ms"


def _network(spec: DecisionSpec) -> str:
    """Say what the network's figures were."""
    if spec.measured is None:
        return ""
    if not spec.measured:
        return "the network's figures were nominal: telemetry does not have all the ways to its peers"
    age = "" if spec.network_age_ns is None else f", {spec.network_age_ns / 1e9:.1f} s before"
    return f"the network's figures were measured{age}"


def _names(nodes: Sequence[str]) -> str:
    rest = len(nodes) - _NAMED
    return " ".join(nodes[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
