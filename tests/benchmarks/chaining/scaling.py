"""A large chain: events one after the other, each until it is seen, and what the two daemons use meanwhile."""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from tests.benchmarks.chaining.cases import WARM_UP_S
from tests.benchmarks.chaining.chain import TOPOLOGIES, Chain, Load, running
from tests.benchmarks.chaining.events import PATIENCE_S, Event, percentile
from tests.benchmarks.chaining.processes import run_in_real_time
from tests.benchmarks.chaining.shards import merge_error

PHASE_S = 0.2
"""Events begin at a random time of a round."""
SHARDED_SWITCHES, SHARDED_FLOWS = 20, 1000
"""The merge of shards does not depend on the size of the fabric."""
FEED_BYTES = "feed bytes"
_DAEMONS = ("collector", "paths")


@dataclass(frozen=True, slots=True)
class Case:
    """Parameters of one run."""

    switches: int
    flows: int
    rate: int
    events: int
    has_sinks: bool = False
    precedes: bool = False

    @property
    def load(self) -> Load:
        """Load of the fabric."""
        return Load(TOPOLOGIES[self.switches], self.flows, self.rate, precedes=self.precedes)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of one run; cores, memory, rates are of the time of the events, `sent` and `taken` of the whole run."""

    events: tuple[Event, ...]
    seconds: float
    cores: Mapping[str, float]
    rss_mib: Mapping[str, float]
    longest_s: Mapping[str, float]
    feed_bytes: int
    sent: int
    taken: int
    problems: Mapping[str, int]
    """Counters of dropped or late work."""
    merge_error: int

    @property
    def reactions_ms(self) -> list[float]:
        """The time that each event took until it was seen, infinite where it was not in time."""
        return [event.reaction_ms for event in self.events]


def run(case: Case) -> Outcome:
    """Run a case."""
    with tempfile.TemporaryDirectory(prefix="mr-scale-") as folder:
        return asyncio.run(_run(case, Path(folder)))


async def _run(case: Case, folder: Path) -> Outcome:
    rng = np.random.default_rng(case.load.seed)
    async with running(case.load, folder, controller=case.has_sinks) as chain:
        await asyncio.sleep(WARM_UP_S)
        if case.precedes:
            for pid in (os.getpid(), *(daemon.pid for daemon in chain.daemons.values())):
                run_in_real_time(pid)
        usage, counters, begun_s = chain.usage(), await _counters(chain), time.monotonic()
        for _ in range(case.events):
            await chain.event(rng, PATIENCE_S)
            await asyncio.sleep(rng.uniform(0, PHASE_S))
        after, counters_after, ended_s = chain.usage(), await _counters(chain), time.monotonic()
        sent, settled = await chain.settled_counters()
        paths, polls = (await chain.clients.paths.fresh()).counters, chain.clients.polls
        return Outcome(
            tuple(chain.events),
            ended_s - begun_s,
            {name: after[name].cores_since(before) for name, before in usage.items()},
            {name: usage.rss_mib for name, usage in after.items()},
            {name: poll.longest_s for name, poll in polls.items()},
            counters_after.get(FEED_BYTES, 0) - counters.get(FEED_BYTES, 0),
            sent.reports,
            settled.get("reports", 0),
            {name: count for name, count in {**settled, **paths}.items() if name in _PROBLEMS and count},
            merge_error(TOPOLOGIES[SHARDED_SWITCHES], SHARDED_FLOWS),
        )


_PROBLEMS = (
    "kernel queue full",
    "reports shed",
    "flows evicted",
    "stale_snapshots",
    "feed_silences",
    "flows_over_limit",
)


async def _counters(chain: Chain) -> dict[str, int]:
    return dict((await chain.clients.collector.fresh()).counters)


def tell(console: Console, case: Case, outcome: Outcome) -> None:
    """Print the reactions in order and what the processes used."""
    reactions = ", ".join(f"{took_ms:.0f}" for took_ms in sorted(outcome.reactions_ms))
    console.print(
        f"{case.switches} switches, {case.flows:,} flows, {case.rate:,} reports/s: reactions in ms: {reactions}"
    )
    for name, cores in outcome.cores.items():
        longest = f", longest status {outcome.longest_s[name]:.2f} s" if name in outcome.longest_s else ""
        console.print(f"  {name}: {cores:.2f} cores, {outcome.rss_mib[name]:.0f} MiB{longest}")
    console.print(
        f"  {outcome.sent:,} reports sent, {outcome.taken:,} taken; {dict(outcome.problems) or 'no problems'}"
    )


def figures(outcome: Outcome) -> dict[str, float | None]:
    """Return the figures of the last line; None where not measured, or never reached."""
    p50, p99 = (_finite(percentile(outcome.reactions_ms, share)) for share in (0.5, 0.99))
    return {
        "report_to_route_p50_ms": p50,
        "report_to_route_p99_ms": p99,
        "cores": round(sum(outcome.cores[name] for name in _DAEMONS), 3),
        "feed_mbytes_per_s": round(outcome.feed_bytes / 1e6 / outcome.seconds, 3),
        "shard_merge_error": outcome.merge_error,
        "links_unowned_s": None,
    }


def _finite(value: float) -> float | None:
    return round(value, 1) if math.isfinite(value) else None
