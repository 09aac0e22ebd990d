"""Which flows should move where: a pure function of snapshot, present paths and settings.

A round judges every flow against the measured network and moves the one whose traffic gains most (gain times rate: one
large flow that finds room relieves a link as much as many small ones), predicts what that does to the links, and judges
again, up to the round's number of moves. What keeps it calm: a gain must exceed a relative and an absolute margin, a
flow that moved is held down, after any move the network settles first, and a path must have room for the flow. Whoever
remembers earlier rounds allows only those flows to move whose wish has lasted (`wishes`). Only a dead path is left at
once. Of equally good paths the one with fewer hops wins, and among equal hops the one with less
delay (spec/offload.md, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from collectors.values import Snapshot
from controller.intents import FlowSpec
from controller.paths.graph import Network, Own, Path, PathFigures, StateGraph, crossings, estimated_rate_bps, links_of
from controller.paths.settings import DecideSettings, Mode
from dataplane.fabric.topology import LinkKey
from dataplane.fabric.units import format_rate

_NS_PER_MS = 1e6
_BPS_PER_MBPS = 1e6
_DEAD_GAIN = 2.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The path a flow is on, when it last moved (None: never) and the rate it is known to send at (None: unknown)."""

    path: Path
    since_ns: int | None = None
    rate_bps: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the decider thinks of one flow now; `best` is the present path when nothing better may be taken."""

    flow: FlowSpec
    present: PathFigures
    best: PathFigures
    candidates: tuple[PathFigures, ...]
    rate_bps: int
    gain: float
    reason: str

    @property
    def moves(self) -> bool:
        """Whether the flow should leave its path."""
        return self.best.switches != self.present.switches


@dataclass(frozen=True, slots=True)
class Decision:
    """A flow is moved: when, from where to where, what was compared, and why in one sentence."""

    time_ns: int
    flow: FlowSpec
    old_path: Path
    new_path: Path
    candidates: tuple[PathFigures, ...]
    reason: str


def decide(
    snapshot: Snapshot,
    network: Network,
    current: Mapping[FlowSpec, Assignment],
    settings: DecideSettings,
    *,
    now_ns: int,
    allowed: Container[FlowSpec] | None = None,
) -> list[Decision]:
    """Return this round's moves, at most `moves_per_round`, in the order in which they were found.

    Only flows that are `allowed` move; None allows all.
    """
    graph = StateGraph.of(network, snapshot, settings)
    placed = dict(current)
    settling = _settling(current.values(), settings, now_ns)
    decisions: list[Decision] = []
    moved: set[FlowSpec] = set()
    for _ in range(settings.moves_per_round):
        count = crossings(assignment.path for assignment in placed.values())
        verdicts = (
            _judge(graph, flow, placed[flow], count)
            for flow in sorted(placed.keys() - moved, key=_order)
            if (allowed is None or flow in allowed)
            and _may_move(graph, placed[flow], settings, now_ns, settling=settling)
        )
        best = max((verdict for verdict in verdicts if verdict.moves), key=_benefit, default=None)
        if best is None:
            break
        old, new = best.present.switches, best.best.switches
        graph.move(best.rate_bps, old, new)
        moved.add(best.flow)
        placed[best.flow] = Assignment(new, now_ns, placed[best.flow].rate_bps)
        decisions.append(Decision(now_ns, best.flow, old, new, best.candidates, best.reason))
    return decisions


def wishes(
    snapshot: Snapshot,
    network: Network,
    current: Mapping[FlowSpec, Assignment],
    settings: DecideSettings,
    *,
    now_ns: int,
) -> dict[FlowSpec, Verdict]:
    """Return the verdicts of all flows that are free and should move, each judged as if it alone did."""
    graph = StateGraph.of(network, snapshot, settings)
    settling = _settling(current.values(), settings, now_ns)
    count = crossings(assignment.path for assignment in current.values())
    verdicts = (
        _judge(graph, flow, assignment, count)
        for flow, assignment in current.items()
        if _may_move(graph, assignment, settings, now_ns, settling=settling) and not _is_content(graph, assignment)
    )
    return {verdict.flow: verdict for verdict in verdicts if verdict.moves}


def explain(
    snapshot: Snapshot,
    network: Network,
    current: Mapping[FlowSpec, Assignment],
    settings: DecideSettings,
    *,
    now_ns: int,
    flow: FlowSpec,
) -> Verdict:
    """Return what the decider thinks of one flow now, and what keeps it where it is; the flow must be in `current`."""
    graph = StateGraph.of(network, snapshot, settings)
    assignment = current[flow]
    verdict = _judge(graph, flow, assignment, crossings(other.path for other in current.values()))
    settling = _settling(current.values(), settings, now_ns)
    if not verdict.moves or _may_move(graph, assignment, settings, now_ns, settling=settling):
        return verdict
    why = "the network settles after a move" if settling else "held down since it last moved"
    return replace(verdict, best=verdict.present, gain=0.0, reason=f"{why}, although {verdict.reason}")


def _benefit(verdict: Verdict) -> tuple[bool, float]:
    """Rank moves: off dead links first, then by gain times rate, so that few flows move and the round helps most."""
    return verdict.present.dead_link is not None, verdict.gain * max(verdict.rate_bps, 1)


def _may_move(
    graph: StateGraph, assignment: Assignment, settings: DecideSettings, now_ns: int, *, settling: bool
) -> bool:
    """Return whether a flow is free: its path is dead, or the network has settled and it is not held down."""
    if any(graph.is_dead(key) for key in links_of(assignment.path)):
        return True
    held = assignment.since_ns is not None and now_ns - assignment.since_ns < settings.hold_down_ns
    return not settling and not held


def _is_content(graph: StateGraph, assignment: Assignment) -> bool:
    """Return whether no path can be better by the margins, so that the candidates need not be compared."""
    path, settings = assignment.path, graph.settings
    if settings.mode is not Mode.LEAST_DELAY or any(graph.is_dead(key) for key in links_of(path)):
        return False
    present_ns = sum(graph.views[key].delay_ns for key in links_of(path))
    least_ns = graph.least_possible_ns(path[0], path[-1])
    return least_ns is not None and present_ns - least_ns < _margin_ns(present_ns, settings)


def _margin_ns(present_ns: int, settings: DecideSettings) -> float:
    return max(settings.min_gain * present_ns, settings.min_gain_ns)


def _settling(assignments: Iterable[Assignment], settings: DecideSettings, now_ns: int) -> bool:
    last_ns = max((a.since_ns for a in assignments if a.since_ns is not None), default=None)
    return last_ns is not None and now_ns - last_ns < settings.settle_ns


def _judge(
    graph: StateGraph,
    flow: FlowSpec,
    assignment: Assignment,
    crossing: Mapping[LinkKey, int],
) -> Verdict:
    """Compare a flow's path with its candidates and say whether it should leave, hold-down not considered."""
    src, dst = graph.network.ends(flow.src_host, flow.dst_host)
    rate_bps = assignment.rate_bps
    if rate_bps is None:
        rate_bps = estimated_rate_bps(graph, assignment.path, crossing)
    own = Own(rate_bps, frozenset(links_of(assignment.path)))
    present = graph.figures(assignment.path, own)
    floor_bps = _floor_bps(graph, src, dst, own)
    paths = {assignment.path: None} | dict.fromkeys(graph.network.candidates(src, dst, graph.settings.candidates))
    measured = graph.least_delay(src, dst, own, floor_bps)
    if measured is not None:
        paths[measured] = None
    candidates = tuple(graph.figures(path, own) for path in paths)
    best, gain, reason = _choose(present, candidates, graph.settings, rate_bps, floor_bps)
    return Verdict(flow, present, best, candidates, rate_bps, gain, reason)


def _floor_bps(graph: StateGraph, src: str, dst: str, own: Own) -> int:
    """Return how wide a path must be: in mode both a share of the widest one, else nothing."""
    if graph.settings.mode is not Mode.BOTH:
        return 0
    return math.ceil(graph.widest_bps(src, dst, own) * graph.settings.widest_share)


Choice = tuple[PathFigures, float, str]
"""The path to be on, the gain as a share (0 to stay), and why."""


def _choose(
    present: PathFigures,
    candidates: tuple[PathFigures, ...],
    settings: DecideSettings,
    rate_bps: int,
    floor_bps: int,
) -> Choice:
    others = [figures for figures in candidates if figures.alive and figures.switches != present.switches]
    roomy = [figures for figures in others if figures.room_bps >= rate_bps and figures.bottleneck_bps >= floor_bps]
    if present.dead_link is not None:
        return _leave_dead(present, roomy or others, settings.mode)
    if settings.mode is Mode.MOST_BANDWIDTH:
        return _by_bandwidth(present, others, settings)
    if present.bottleneck_bps < floor_bps * (1 - settings.min_gain) and roomy:
        best = min(roomy, key=_less_delay)
        if best.bottleneck_bps - present.bottleneck_bps >= settings.min_gain_bps:
            reason = f"{_show(present)} is narrower than {format_rate(floor_bps)}, the bound of mode both"
            return best, 1 - present.bottleneck_bps / best.bottleneck_bps, f"{reason}; {_show(best)} is not"
    return _by_delay(present, roomy, settings)


def _leave_dead(present: PathFigures, others: list[PathFigures], mode: Mode) -> Choice:
    problem = f"link {present.dead_link} of {_name(present)} is dead"
    if not others:
        return present, 0.0, f"{problem} and no other path is alive"
    best = min(others, key=_more_bandwidth if mode is Mode.MOST_BANDWIDTH else _less_delay)
    return best, _DEAD_GAIN, f"{problem}; {_show(best)} is alive"


def _by_delay(present: PathFigures, roomy: list[PathFigures], settings: DecideSettings) -> Choice:
    if not roomy:
        return present, 0.0, "no other path has room"
    best = min(roomy, key=_less_delay)
    gain_ns = present.delay_ns - best.delay_ns
    if gain_ns <= 0:
        return present, 0.0, f"{_show(present)} has the least delay"
    if gain_ns < _margin_ns(present.delay_ns, settings):
        return present, 0.0, f"{_show(best)} is better than {_show(present)} by less than the margin"
    return best, gain_ns / present.delay_ns, f"{_show(best)} has less delay than {_show(present)}"


def _by_bandwidth(present: PathFigures, others: list[PathFigures], settings: DecideSettings) -> Choice:
    if not others:
        return present, 0.0, "no other path is alive"
    best = min(others, key=_more_bandwidth)
    gain_bps = best.bottleneck_bps - present.bottleneck_bps
    if gain_bps > 0 and gain_bps >= max(settings.min_gain * present.bottleneck_bps, settings.min_gain_bps):
        return best, gain_bps / best.bottleneck_bps, f"{_show(best)} is wider than {_show(present)}"
    as_good = [o for o in others if o.bottleneck_bps >= present.bottleneck_bps and o.hops <= present.hops]
    choice = _by_delay(present, as_good, settings)
    return choice if choice[1] else (present, 0.0, f"no path is wider than {_show(present)} by more than the margin")


def _less_delay(figures: PathFigures) -> tuple[int, int, Path]:
    return figures.delay_ns, figures.hops, figures.switches


def _more_bandwidth(figures: PathFigures) -> tuple[int, int, int, Path]:
    return -figures.bottleneck_bps, figures.hops, figures.delay_ns, figures.switches


def _order(flow: FlowSpec) -> tuple[str, str, int, int, int]:
    ports = (-1 if number is None else number for number in (flow.protocol, flow.src_port, flow.dst_port))
    return (flow.src_host, flow.dst_host, *ports)  # type: ignore[return-value]


def _name(figures: PathFigures) -> str:
    return "-".join(figures.switches)


def _show(figures: PathFigures) -> str:
    milliseconds = figures.delay_ns / _NS_PER_MS
    return f"{_name(figures)} ({milliseconds:.3f} ms, {figures.bottleneck_bps / _BPS_PER_MBPS:.1f} Mbit/s free)"
