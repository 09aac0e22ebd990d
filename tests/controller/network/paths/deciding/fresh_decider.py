"""A decider without memory: one snapshot, one set of flows, one query."""

from __future__ import annotations

from collections.abc import Container, Mapping

from collectors.values import Snapshot
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment, Decision, Verdict
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.graph import Network
from controller.network.paths.settings import DecideSettings


def _fresh(
    snapshot: Snapshot, network: Network, current: Mapping[FlowSpec, Assignment], settings: DecideSettings
) -> Decider:
    decider = Decider(network, settings)
    decider.observe(snapshot)
    decider.locate(current)
    return decider


def decide(
    snapshot: Snapshot,
    network: Network,
    current: Mapping[FlowSpec, Assignment],
    settings: DecideSettings,
    *,
    now_ns: int,
    allowed: Container[FlowSpec] | None = None,
) -> list[Decision]:
    """Return the moves of one round by a fresh decider."""
    return _fresh(snapshot, network, current, settings).decide(now_ns, allowed)


def explain(
    snapshot: Snapshot,
    network: Network,
    current: Mapping[FlowSpec, Assignment],
    settings: DecideSettings,
    *,
    now_ns: int,
    flow: FlowSpec,
) -> Verdict:
    """Return a fresh decider's judgement of one flow."""
    return _fresh(snapshot, network, current, settings).explain(flow, now_ns)
