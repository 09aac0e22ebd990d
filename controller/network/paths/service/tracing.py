"""OpenTelemetry spans of the path server's rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from controller.common.tracing import UNTRACED, Traces
from controller.network.intents import FlowSpec, RouteSet
from controller.network.paths.round_result import RoundResult


@dataclass(frozen=True, slots=True)
class Round:
    """Cause of a round, its start, and the time of the state it decided by, all in ns of the server's clock."""

    cause: Literal["state", "link", "links", "pin", "release", "drain", "lease"]
    begun_ns: int
    taken_ns: int | None = None


def traced(traces: Traces, round_: Round, result: RoundResult) -> RouteSet:
    """Record a round that ends now, and return its routes with the trace's context.

    The span `reroute` begins when the state was taken, `decide` in it when the round began; moves are its events.
    """
    if traces is UNTRACED:
        return result.routes
    since_ns = round_.begun_ns if round_.taken_ns is None else min(round_.taken_ns, round_.begun_ns)
    counts = {"millrace.moves": len(result.moves), "millrace.rebalances": len(result.rebalances)}
    counts["millrace.routes.version"] = result.routes.version
    reroute = traces.begin("reroute", {**counts, "millrace.cause": round_.cause}, since_ns=since_ns)
    decide = traces.begin("decide", {}, parent=reroute.traceparent, since_ns=round_.begun_ns)
    for move in result.moves:
        about = {"millrace.flow": _named(move.flow), "millrace.reason": move.reason}
        decide.event("move", {**about, "millrace.from": move.old_path, "millrace.to": move.new_path})
    for change in result.rebalances:
        where = {"millrace.switch": change.switch, "millrace.destination": change.destination}
        decide.event("rebalance", where | {"millrace.reason": change.reason})
    decide.end()
    reroute.end()
    return replace(result.routes, traceparent=reroute.traceparent)


def _named(flow: FlowSpec) -> str:
    parts = [f"{flow.src_host}->{flow.dst_host}"]
    if flow.protocol is not None:
        parts.append(f"protocol {flow.protocol}")
    if flow.src_port is not None or flow.dst_port is not None:
        ports = ("any" if port is None else str(port) for port in (flow.src_port, flow.dst_port))
        parts.append("ports " + "->".join(ports))
    return " ".join(parts)
