"""Print decisions for people: the outcome, then each node or centre that was refused or scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from controller.apps.cli.shared.output import Format, show, utc
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.apiserver.resources import Decision
    from controller.apiserver.resources.decision import DecisionSpec

COLUMNS: Final = ("decision", "at", "outcome", "scheduler", "reason", "measured", "scores", "refused", "preempted")
_NAMED: Final = 8
"""Nodes that a group of refusals names; JSON has all."""


def show_decision(decision: Decision, kind: str = "node") -> None:
    """Print one decision; `kind` is that of its candidates: node or centre."""
    spec = decision.spec
    typer.echo(f"{_when(decision)}: {spec.outcome} by {spec.scheduler}, profile {spec.profile}{_duration(spec)}")
    typer.echo(spec.reason)
    network = _network(spec)
    if network:
        typer.echo(network)
    if spec.preempted:
        typer.echo(f"preempted for it: {', '.join(spec.preempted)}")
    if spec.scores:
        policies = tuple(dict.fromkeys(policy for score in spec.scores for policy in score.parts))
        show(
            (kind, "points", *policies),
            ((score.node, score.total, *(score.parts.get(policy) for policy in policies)) for score in spec.scores),
            Format.TABLE,
        )
        reasons = [(score.node, *line.partition(": ")[::2]) for score in spec.scores for line in score.reasons]
        show((kind, "policy", "why"), reasons, Format.TABLE)
    if spec.refused:
        refusals = (
            (len(refusal.nodes), refusal.policy, refusal.reason, _names(refusal.nodes)) for refusal in spec.refused
        )
        show(("refused", "policy", "why", "nodes"), refusals, Format.TABLE)


def show_history(decisions: Sequence[Decision]) -> None:
    """Print a line for each decision if there are several."""
    if len(decisions) < 2:
        return
    typer.echo("decisions, newest first:")
    rows = (
        (_when(decision), decision.spec.outcome, decision.spec.scheduler, decision.spec.reason)
        for decision in reversed(decisions)
    )
    show(("at (UTC)", "outcome", "scheduler", "reason"), rows, Format.TABLE)


def cells(decision: Decision) -> tuple[object, ...]:
    """Return a decision as a row of `COLUMNS`, for programs."""
    import msgspec  # noqa: PLC0415

    spec = decision.spec
    scores = [msgspec.to_builtins(score) for score in spec.scores]
    refused = [msgspec.to_builtins(refusal) for refusal in spec.refused]
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


def _duration(spec: DecisionSpec) -> str:
    """Return its duration by the scheduler's clock, as the end of a sentence."""
    if spec.begun_ns is None or spec.decided_ns is None:
        return ""
    return f", in {(spec.decided_ns - spec.begun_ns) / 1e6:.1f} ms"


def _network(spec: DecisionSpec) -> str:
    """Print the origin and age of the network's figures."""
    if spec.measured is None:
        return ""
    if not spec.measured:
        return "network figures were nominal: telemetry does not cover all paths to its peers"
    age = "" if spec.network_age_ns is None else f", {spec.network_age_ns / NS_PER_S:.1f} s before"
    return f"network figures were measured{age}"


def _names(nodes: Sequence[str]) -> str:
    rest = len(nodes) - _NAMED
    return " ".join(nodes[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
