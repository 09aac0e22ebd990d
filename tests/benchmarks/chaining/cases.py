"""Cases of the chain's benchmark: a fabric, flows and a rate; events one after the other, and what each process did."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.chaining.chain import TOPOLOGIES, Chain, Load, running
from tests.benchmarks.chaining.events import Event, percentile
from tests.benchmarks.chaining.flows import Mix
from tests.benchmarks.chaining.sinks import Arrival

WARM_UP_S = 6.0
"""Three times the span that flows' rates are measured over."""
SETTLE_S = 300.0
"""The longest that a controller may take to fill the switches before the events begin."""
CLIENT = "client"
COUNTED = ("reports", "kernel queue full", "receive malformed", "reports shed")
"""Counters of the collector that say what became of a datagram: of everything that was sent, one of these counts it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Parameters of one run."""

    switches: int
    flows: int
    rate: int
    mix: Mix = Mix.UNIFORM

    @property
    def load(self) -> Load:
        """Load of the fabric."""
        return Load(TOPOLOGIES[self.switches], self.flows, self.rate, self.mix)

    def __str__(self) -> str:
        return f"{self.switches} switches, {self.flows:,} flows ({self.mix}), {self.rate:,} reports/s"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of one run; counters cover the whole run, cores and memory the events."""

    events: tuple[Event, ...]
    sent: int
    sent_per_s: float
    cores: Mapping[str, float]
    rss_mib: Mapping[str, float]
    longest_s: Mapping[str, float]
    """Maximum latency of each daemon's status call, and the delay of the client itself."""
    overloads: Mapping[str, Sequence[str]]
    """The causes of overload that each daemon named."""
    counters: Mapping[str, int]
    path_counters: Mapping[str, int]
    route_sets: int
    writes_ms: tuple[float, ...] = ()
    """From each event's route set to the write to the switch at which its first flow is moved; none without sinks."""

    @property
    def longest_status_s(self) -> float:
        """The longest that any daemon took."""
        return max(took_s for name, took_s in self.longest_s.items() if name != CLIENT)

    @property
    def reactions_ms(self) -> list[float]:
        """The time that each event took until it was seen, infinite where it was not in time."""
        return [event.reaction_ms for event in self.events]

    @property
    def seen(self) -> int:
        """Number of events seen in time."""
        return sum(math.isfinite(took_ms) for took_ms in self.reactions_ms)

    @property
    def seen_share(self) -> float:
        """The share of events that were seen in time."""
        return self.seen / len(self.events)

    @property
    def decided_share(self) -> float:
        """Share of the heavy flows on congested links that were moved off them in time."""
        return sum(event.decided for event in self.events) / sum(len(event.heavy) for event in self.events)

    @property
    def dropped_silently(self) -> int:
        """Reports that were sent, and that no counter tells of."""
        return self.sent - sum(self.counters.get(name, 0) for name in COUNTED)


def run(case: Case, seconds: float, *, controller: bool, precedes: bool = False) -> Outcome:
    """Run a case, with as many events as fit into the time, two at least."""
    with tempfile.TemporaryDirectory(prefix="mr-chain-") as folder:
        load = replace(case.load, precedes=precedes)
        return asyncio.run(_run(load, Path(folder), seconds, controller=controller))


async def _run(load: Load, folder: Path, seconds: float, *, controller: bool) -> Outcome:
    rng = np.random.default_rng(load.seed)
    async with running(load, folder, controller=controller) as chain:
        await _settle(chain)
        usage, sent = chain.usage(), await chain.sender.sent()
        begun_s = time.monotonic()
        while len(chain.events) < 2 or time.monotonic() - begun_s < seconds:
            await chain.event(rng)
        after, sent_after = chain.usage(), await chain.sender.sent()
        all_sent, counters = await chain.settled_counters()
        paths, polls = (await chain.clients.paths.fresh()).counters, chain.clients.polls
        return Outcome(
            tuple(chain.events),
            all_sent.reports,
            (sent_after.reports - sent.reports) / (sent_after.at_s - sent.at_s),
            {name: after[name].cores_since(before) for name, before in usage.items()},
            {name: usage.rss_mib for name, usage in after.items()},
            {name: poll.longest_s for name, poll in polls.items()} | {CLIENT: chain.clients.lateness.longest_s},
            {name: sorted(poll.causes.values()) for name, poll in polls.items()},
            counters,
            dict(paths),
            chain.route_sets,
            writes_ms(chain.events, [] if chain.switches is None else chain.switches.arrivals()),
        )


def writes_ms(events: Iterable[Event], arrivals: Sequence[Arrival]) -> tuple[float, ...]:
    """Return how long after each event's route set the switch was written to at which its first flow is moved."""
    delays = []
    for event in events:
        if event.seen_ns is not None and arrivals:
            after = (a.time_ns for a in arrivals if a.switch == event.source and a.time_ns >= event.seen_ns)
            delays.append((next(after, math.inf) - event.seen_ns) / 1e6)
    return tuple(delays)


async def _settle(chain: Chain) -> None:
    """Wait until rates are measured and the controller, if any, has filled the switches, at most SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    poll = chain.clients.controller
    while poll is not None and time.monotonic() < deadline:
        if poll.newest is not None and poll.newest.settled and len(poll.newest.live) == poll.newest.switches:
            break
        await asyncio.sleep(0.5)
    await asyncio.sleep(WARM_UP_S)


def table_of(outcomes: Mapping[Case, Outcome]) -> Table:
    """Return a row for each case."""
    table = Table(
        *("switches", "flows", "reports/s", "sent/s", "seen", "p50 ms", "p99 ms", "heavy decided"),
        *(
            "cores: collector",
            "paths",
            "controller",
            "sender",
            "MiB: collector",
            "paths",
            "status s",
            "dropped",
            "silently",
        ),
        title="The chain: from the first report of a congestion to the route set",
    )
    for case, outcome in outcomes.items():
        cores = (f"{outcome.cores[name]:.2f}" if name in outcome.cores else "" for name in _PROCESSES)
        table.add_row(
            f"{case.switches}",
            f"{case.flows:,} {case.mix if case.mix is not Mix.UNIFORM else ''}".strip(),
            f"{case.rate:,}",
            f"{outcome.sent_per_s:,.0f}",
            f"{outcome.seen}/{len(outcome.events)}",
            *(_milliseconds(percentile(outcome.reactions_ms, share)) for share in (0.5, 0.99)),
            f"{outcome.decided_share:.0%}",
            *cores,
            *(f"{outcome.rss_mib[name]:.0f}" for name in ("collector", "paths")),
            f"{outcome.longest_status_s:.2f}",
            f"{outcome.counters.get('kernel queue full', 0):,}",
            f"{outcome.dropped_silently:,}",
        )
    return table


_PROCESSES = ("collector", "paths", "controller", "sender")


def tell(console: Console, case: Case, outcome: Outcome) -> None:
    """Print what a table has no room for."""
    reactions = ", ".join(_milliseconds(took_ms) for took_ms in outcome.reactions_ms)
    console.print(f"{case}: reactions in ms: {reactions}; {outcome.route_sets} route sets", soft_wrap=True)
    if outcome.writes_ms:
        writes = ", ".join(map(_milliseconds, outcome.writes_ms))
        console.print(f"  from the route set to the write at the flow's first switch, ms: {writes}", soft_wrap=True)
    console.print(f"  longest status, s: {', '.join(f'{k} {v:.2f}' for k, v in outcome.longest_s.items())}")
    for name, causes in outcome.overloads.items():
        for cause in causes:
            console.print(f"  {name} overloaded: {cause}", soft_wrap=True)
    for name, counters in (("collector", outcome.counters), ("paths", outcome.path_counters)):
        console.print(f"  {name}: {', '.join(_nonzero(counters))}", soft_wrap=True)


def _nonzero(counters: Mapping[str, int]) -> Iterable[str]:
    return (f"{name} {count:,}" for name, count in sorted(counters.items()) if count)


def _milliseconds(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "never"


def figures(outcomes: Mapping[Case, Outcome]) -> dict[str, float | None]:
    """Return the figures of the last line; None if not measured, or never reached."""
    ten, fifty = outcomes.get(GOAL_10K), outcomes.get(GOAL_50K)
    many = outcomes.get(MANY_FLOWS)
    all_of: Sequence[Outcome] = list(outcomes.values())
    return {
        "reaction_p50_ms_10k": None if ten is None else _finite(percentile(ten.reactions_ms, 0.5)),
        "reaction_p99_ms_10k": None if ten is None else _finite(percentile(ten.reactions_ms, 0.99)),
        "events_seen_50k": None if fifty is None else round(fifty.seen_share, 4),
        "status_max_s": round(max(outcome.longest_status_s for outcome in all_of), 3) if all_of else None,
        "dropped_silently": sum(outcome.dropped_silently for outcome in all_of) if all_of else None,
        "flows_decided_20000": None if many is None else round(many.decided_share, 4),
    }


def _finite(value: float) -> float | None:
    return round(value, 1) if math.isfinite(value) else None


GOAL_10K = Case(20, 4096, 10_000)
GOAL_50K = Case(20, 4096, 50_000)
MANY_FLOWS = Case(20, 20_000, 10_000, Mix.HEAVY)
CASES = (
    Case(20, 1000, 1000),
    Case(20, 1000, 3000),
    Case(20, 1000, 10_000),
    Case(20, 4096, 1000),
    GOAL_10K,
    GOAL_50K,
    MANY_FLOWS,
    Case(20, 20_000, 50_000, Mix.HEAVY),
    Case(20, 20_000, 10_000),
    Case(180, 1000, 10_000),
    Case(180, 4096, 10_000),
    Case(180, 4096, 50_000),
)
NAMES = tuple(figures({}))
