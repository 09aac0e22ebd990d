"""Decision for one flow: whether and where to move it, by comparing its path with its candidates.

A gain must exceed a relative and an absolute margin, and a path must have room for the flow. Of equally good paths the
one with fewer hops wins, and with equal hops the one with less delay. `controller.network.paths.deciding.decider`
chooses which flows are judged, and when.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.network.intents import FlowSpec
from controller.network.paths.deciding.graph import Own, Path, PathFigures, StateGraph
from controller.network.paths.settings import DecideSettings, Mode
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES
from dataplane.clock import NS_PER_MS
from dataplane.notebook import milliseconds, table_html
from dataplane.topology.units import format_rate
from dataplane.topology.values import LinkKey

_BPS_PER_MBPS = 1e6
DEAD_GAIN = 2.0


@dataclass(frozen=True, slots=True)
class Part:
    """Share of a host pair's 5-tuples on one path: their rate, as it counts in sums over links, and its variance."""

    path: Path
    rate_bps: float
    variance: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """The path a flow is on, when it last moved (None: never), its rate and its frames' length (None: unknown).

    `measured_bytes` are those that the rate was estimated from, None for a rate that is known; `uncertain_bps` is its
    standard deviation, by default derived from that many bytes. `past_bps` is the part of it that has ended: the
    packets that young flows began with, and flows that have fallen silent. As the flow's own need it is better
    overestimated, in sums over links it is not. `parts` has all paths where the hash spreads the 5-tuples of a pair;
    `path` is then that of the largest. A flow `pinned` to its path loads links like any other, and is not moved.
    """

    path: Path
    since_ns: int | None = None
    rate_bps: int | None = None
    packet_bytes: int | None = None
    measured_bytes: int | None = None
    past_bps: int = 0
    uncertain_bps: int | None = None
    parts: tuple[Part, ...] = ()
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decider's current view of one flow; `best` is the present path if nothing better may be taken."""

    flow: FlowSpec
    present: PathFigures
    best: PathFigures
    candidates: tuple[PathFigures, ...]
    rate_bps: int
    gain: float
    reason: str
    packets_per_s: float = 0.0

    @property
    def moves(self) -> bool:
        """Return whether the flow should leave its path."""
        return self.best.switches != self.present.switches

    @property
    def is_detour(self) -> bool:
        """Return whether the flow would leave a link that cannot carry its load for a path of more links."""
        is_relief = self.present.usable and self.present.crowded_link is not None
        return is_relief and self.best.hops > self.present.hops


@dataclass(frozen=True, slots=True)
class Decision:
    """A move of a flow: when, from where to where, the compared paths, and the reason in one sentence.

    `dead_link` is the dead or drained link that it had to leave, None for every other reason.
    """

    time_ns: int
    flow: FlowSpec
    old_path: Path
    new_path: Path
    candidates: tuple[PathFigures, ...]
    reason: str
    dead_link: LinkKey | None = None

    def _repr_html_(self) -> str:
        """Show the compared paths in a notebook."""
        rows = (
            (
                "-".join(figures.switches),
                milliseconds(figures.delay_ns),
                f"{figures.bottleneck_bps / 1e6:.3f}",
                {self.old_path: "left", self.new_path: "taken"}.get(figures.switches),
                None if figures.dead_link is None else f"dead: {figures.dead_link}",
            )
            for figures in self.candidates
        )
        flow = f"{self.flow.src_host} to {self.flow.dst_host}: {'-'.join(self.old_path)} to {'-'.join(self.new_path)}"
        return table_html(f"{flow}. {self.reason}", ("path", "delay ms", "free Mbit/s", "", ""), rows)


def judge(graph: StateGraph, flow: FlowSpec, now: Assignment, rate_bps: int) -> Verdict:
    """Compare a flow's path with its candidates and return whether it should leave, ignoring hold-down.

    `rate_bps` is its presumed rate. Some of the traffic sent over a link that cannot carry it is lost, so where rates
    are measured such a flow needs more room than its rate. Candidates are the shortest paths by configured delay, the
    one of least measured delay with room, and the widest one where bandwidth decides; from a dead path also the one of
    least delay without room.
    """
    src, dst = graph.network.ends(flow.src_host, flow.dst_host)
    path = now.path
    packets_per_s = rate_bps / (8 * (now.packet_bytes or DEFAULT_PACKET_BYTES))
    own = Own(rate_bps, graph.network.rows(path), packets_per_s)
    present = graph.figures(path, own)
    floor_bps = _floor_bps(graph, src, dst, own)
    measured = [graph.least_delay(src, dst, own, floor_bps)]
    if graph.settings.mode is Mode.MOST_BANDWIDTH:
        measured.append(graph.widest(src, dst, own))
    if measured == [None] and not present.usable:
        measured.append(graph.way_out(src, dst))
    paths = dict.fromkeys((path, *graph.network.candidates(src, dst, graph.settings.candidates)))
    paths |= dict.fromkeys(candidate for candidate in measured if candidate is not None)
    candidates = tuple(graph.figures(candidate, own) for candidate in paths)
    hidden = graph.settings.hidden if present.crowded_link is not None and now.measured_bytes is not None else 1.0
    best, gain, reason = _choose(present, candidates, graph.settings, rate_bps * hidden, floor_bps)
    return Verdict(flow, present, best, candidates, rate_bps, gain, reason, packets_per_s)


def _floor_bps(graph: StateGraph, src: str, dst: str, own: Own) -> int:
    """Return how wide a path must be: in mode both a share of the widest one, else 0."""
    if graph.settings.mode is not Mode.BOTH:
        return 0
    return math.ceil(graph.widest_bps(src, dst, own) * graph.settings.widest_share)


Choice = tuple[PathFigures, float, str]
"""The path to be on, the gain as a share (0 to stay), and why."""


def _choose(
    present: PathFigures,
    candidates: tuple[PathFigures, ...],
    settings: DecideSettings,
    need_bps: float,
    floor_bps: int,
) -> Choice:
    others = [figures for figures in candidates if figures.usable and figures.switches != present.switches]
    roomy = [figures for figures in others if figures.room_bps >= need_bps and figures.bottleneck_bps >= floor_bps]
    if not present.usable:
        return _leave_unusable(present, roomy or others, settings.mode)
    if settings.mode is Mode.MOST_BANDWIDTH:
        return _by_bandwidth(present, others, settings)
    if present.bottleneck_bps < floor_bps * (1 - settings.min_gain) and roomy:
        best = min(roomy, key=_less_delay)
        if best.bottleneck_bps - present.bottleneck_bps >= settings.min_gain_bps:
            reason = f"{_show(present)} has less free bandwidth than {format_rate(floor_bps)}, the bound of mode both"
            return best, 1 - present.bottleneck_bps / best.bottleneck_bps, f"{reason}; {_show(best)} has enough"
    return _by_delay(present, roomy, settings)


def _leave_unusable(present: PathFigures, others: list[PathFigures], mode: Mode) -> Choice:
    is_dead = present.dead_link is not None
    link, state = (present.dead_link, "dead") if is_dead else (present.drained_link, "drained")
    problem = f"link {link} of {_name(present)} is {state}"
    if not others:
        return present, 0.0, f"{problem} and no other path {'is alive' if is_dead else 'may be used'}"
    best = min(others, key=_more_bandwidth if mode is Mode.MOST_BANDWIDTH else _less_delay)
    return best, DEAD_GAIN, f"{problem}; {_show(best)} {'is alive' if is_dead else 'may be used'}"


def _by_delay(present: PathFigures, roomy: list[PathFigures], settings: DecideSettings) -> Choice:
    if not roomy:
        return present, 0.0, "no other path has room"
    best = min(roomy, key=_less_delay)
    gain_ns = present.cost_ns - best.cost_ns
    if gain_ns <= 0:
        return present, 0.0, f"{_show(present)} has the least delay"
    if gain_ns < margin_ns(present.cost_ns, settings):
        return present, 0.0, f"{_show(best)} is better than {_show(present)} by less than the margin"
    if present.crowded_link is not None and best.crowded_link is None:
        reason = f"{present.crowded_link} of {_show(present)} is overloaded; {_show(best)} has room"
        return best, gain_ns / present.cost_ns, reason
    return best, gain_ns / present.cost_ns, f"{_show(best)} has less delay than {_show(present)}"


def _by_bandwidth(present: PathFigures, others: list[PathFigures], settings: DecideSettings) -> Choice:
    if not others:
        return present, 0.0, "no other path is alive"
    best = min(others, key=_more_bandwidth)
    gain_bps = best.bottleneck_bps - present.bottleneck_bps
    if gain_bps > 0 and gain_bps >= max(settings.min_gain * present.bottleneck_bps, settings.min_gain_bps):
        return best, gain_bps / best.bottleneck_bps, f"{_show(best)} has more free bandwidth than {_show(present)}"
    as_good = [o for o in others if o.bottleneck_bps >= present.bottleneck_bps and o.hops <= present.hops]
    choice = _by_delay(present, as_good, settings)
    if choice[1]:
        return choice
    return present, 0.0, f"no path has more free bandwidth than {_show(present)} by more than the margin"


def _less_delay(figures: PathFigures) -> tuple[int, int, Path]:
    return figures.cost_ns, figures.hops, figures.switches


def _more_bandwidth(figures: PathFigures) -> tuple[int, int, int, Path]:
    return -figures.bottleneck_bps, figures.hops, figures.cost_ns, figures.switches


def margin_ns(present_ns: int, settings: DecideSettings) -> float:
    """Return the delay by which a path must be better than one of this delay."""
    return max(settings.min_gain * present_ns, settings.min_gain_ns or 0)


def flow_order(flow: FlowSpec) -> tuple[str, str, int, int, int]:
    """Return the sort key of flows; of equally good moves, the first flow's is made."""
    ports = (-1 if number is None else number for number in (flow.protocol, flow.src_port, flow.dst_port))
    return (flow.src_host, flow.dst_host, *ports)  # type: ignore[return-value]


def _name(figures: PathFigures) -> str:
    return "-".join(figures.switches)


def _show(figures: PathFigures) -> str:
    milliseconds = figures.delay_ns / NS_PER_MS
    return f"{_name(figures)} ({milliseconds:.3f} ms, {figures.bottleneck_bps / _BPS_PER_MBPS:.1f} Mbit/s free)"
