"""The running chain under disturbances, one after the other, at 20,000 reports/s: afterwards it is as if none had been.

Collector, path server and controller, with default settings but for addresses, folders and the path server's file, are
killed (SIGKILL) and started again; the collector is paused (SIGSTOP) and released; the load is doubled and halved;
an attacker floods the collector, reports in the name of an unknown switch, and sends 100,000 flows of one
packet each. Subscribers that never read hold on to snapshots, records, routes and decisions all the time. After each
disturbance everything has to recover, a congestion has to be answered, and every report has to be counted. In the end a
chain that was never disturbed carries the same flows on the same paths: both have to know the same (`chaining/states`).

Usage: python -m tests.soak.chain [--minutes N] [--seed N] [--rate N] [--flows N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import grpc.aio
import numpy as np

from collectors.feed import feed_pb2
from dataplane.errors import MillraceError
from dataplane.local.deadline import LocalDeadline
from tests.benchmarks.chaining.cases import COUNTED
from tests.benchmarks.chaining.chain import TOPOLOGIES, Chain, Load, running
from tests.benchmarks.chaining.processes import Daemon, Usage, precede_others
from tests.benchmarks.chaining.sender import Bad
from tests.benchmarks.chaining.states import State, differences, state_of
from tests.waiting import until

RATE, FLOWS = 20_000.0, 4096
SINGLE_FLOWS = 100_000
FLOOD_TIMES = 4
RECOVERY_S, ANSWER_S, STATUS_S = 60.0, 10.0, 5.0
"""Longest times until recovery, until a congestion is answered, and for a status, on an idle machine; the
benchmark measures them, here they only distinguish slow from hanging."""
MEASURED_S = 4.0
"""Twice the span that flows' rates are measured over."""
LAST_S = 20.0
"""Longer than the window of links' and flows' figures, and than the hold-down of a moved flow."""
_SHORT_S, _LONG_S = 5.0, 10.0
_POLL_S = 0.25
_KNOWN_FLOWS = 0.9

_EVERY_100_MS: Final = feed_pb2.WatchSnapshotsRequest(interval_ns=100_000_000)
_DEAF: Final = (
    ("collector", "/millrace.collectors.v2.Feed/WatchSnapshots", _EVERY_100_MS.SerializeToString()),
    ("collector", "/millrace.collectors.v2.Feed/WatchRecords", b""),
    ("paths", "/millrace.paths.v1.Paths/WatchRoutes", b""),
    ("paths", "/millrace.paths.v1.Paths/WatchDecisions", b""),
)
"""Calls whose answers are never read: the daemon, the method, the request."""


@dataclass(slots=True)
class Report:
    """Result of the soak; `problems` is empty on success."""

    recovery_s: dict[str, list[float]] = field(default_factory=dict)
    """Time until everything recovered, by disturbance."""
    reactions_ms: list[float | None] = field(default_factory=list)
    """Reaction to the congestion after each disturbance; None where it was not seen."""
    counted: dict[str, dict[str, int]] = field(default_factory=dict)
    """The collector's counts at the last disturbance of each kind that it survived."""
    status_max_s: float = 0.0
    busy: float = 1.0
    """Threads that wanted a CPU, per CPU, averaged over the busiest minute; at least 1."""
    rss_mib: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Memory of each daemon after the first disturbance and at the end."""
    deaf_calls: int = 0
    """Subscriptions that are never read."""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ending:
    """State of a chain after a while without disturbances."""

    state: State
    moves: int
    silently: int
    problems: list[str]


class Soak:
    """Disturbs a chain."""

    def __init__(self, chain: Chain, report: Report, seed: int, disturbed_s: float) -> None:
        self.chain, self.report, self._disturbed_s = chain, report, disturbed_s
        self._rng = np.random.default_rng(seed)
        self._rate = chain.load.rate
        self.disturbances: dict[str, Callable[[], Awaitable[None]]] = {
            "collector killed": lambda: self._kill("collector"),
            "unknown switch": lambda: self._bad(Bad.UNKNOWN),
            "path server killed": lambda: self._kill("paths"),
            "load doubled": lambda: self._at_rate(2 * self._rate),
            "controller killed": lambda: self._kill("controller"),
            "collector paused": self._pause,
            "flood": lambda: self._bad(Bad.WRONG_SOURCE, FLOOD_TIMES),
            "load halved": lambda: self._at_rate(self._rate / 2),
            "flows of one packet": self._single_packets,
        }

    async def run(self, minutes: float) -> None:
        """Run all disturbances in turn until the time is over, each at least once."""
        deadline, first = time.monotonic() + 60 * minutes, dict[str, Usage]()
        await self._recovered()
        while True:
            for name in self.disturbances:
                if len(self.report.recovery_s) == len(self.disturbances) and time.monotonic() > deadline:
                    self._note_memory(first)
                    return
                await self._disturb(name)
                first = first or self.chain.usage()

    async def _disturb(self, name: str) -> None:
        self.report.busy = max(self.report.busy, os.getloadavg()[0] / (os.cpu_count() or 1))
        before = await self._quiet()
        await self.disturbances[name]()
        try:
            took_s = await self._recovered()
        except TimeoutError as error:
            self.report.problems.append(f"{name}: {error}")
            return
        self.report.recovery_s.setdefault(name, []).append(took_s)
        if name != "collector killed":
            self._account(name, before, await self._quiet())
        self.chain.sender.order(rate=self._rate)
        await asyncio.sleep(MEASURED_S)
        event = await self.chain.event(self._rng, ANSWER_S)
        self.report.reactions_ms.append(event.reaction_ms if math.isfinite(event.reaction_ms) else None)
        if not math.isfinite(event.reaction_ms):
            self.report.problems.append(f"{name}: the congestion of {event.link} after it was not answered")

    async def _quiet(self) -> Mapping[str, int]:
        """Stop the load; return the counts of sender and collector, and restart it."""
        sent, counters = await self.chain.settled_counters()
        self.chain.sender.order(rate=self._rate)
        return {**counters, "sent": sent.reports, "sent bad": sent.bad}

    def _account(self, name: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        grown = {key: count - before.get(key, 0) for key, count in after.items() if count != before.get(key, 0)}
        self.report.counted[name] = grown
        silently = grown.get("sent", 0) + grown.get("sent bad", 0) - sum(grown.get(key, 0) for key in COUNTED)
        if silently:
            self.report.problems.append(f"{name}: {silently} reports are in no counter")
        lost, bad = grown.get("kernel queue full", 0), grown.get("sent bad", 0)
        shed = {
            "unknown switch": ("unknown reporter",),
            "flood": ("wrong source",),
            "flows of one packet": ("flows forgotten", "flows not admitted"),
        }.get(name)
        if shed is not None:
            told = sum(grown.get(key, 0) for key in shed)
            # A table has room for some flows of one packet.
            least = (SINGLE_FLOWS // 2 if name == "flows of one packet" else bad) - lost
            if told < least or not told:
                self.report.problems.append(f"{name}: {told} in {' and '.join(shed)}, fewer than {least} of {bad}")

    async def _kill(self, name: str) -> None:
        daemon, poll = self.chain.daemons[name], self.chain.clients.polls[name]
        with poll.excused():
            await asyncio.to_thread(_restart, daemon)

    async def _pause(self) -> None:
        with self.chain.clients.collector.excused():
            self.chain.daemons["collector"].pause()
            await asyncio.sleep(self._disturbed_s)
            self.chain.daemons["collector"].release()

    async def _at_rate(self, rate: float) -> None:
        self.chain.sender.order(rate=rate)
        await asyncio.sleep(self._disturbed_s)
        self.chain.sender.order(rate=self._rate)

    async def _bad(self, bad: Bad, times: int = 1) -> None:
        self.chain.sender.order(bad=bad, times=times)
        await asyncio.sleep(self._disturbed_s)
        self.chain.sender.order(bad=Bad.NONE, times=1)

    async def _single_packets(self) -> None:
        before = (await self.chain.sender.sent()).bad
        self.chain.sender.order(bad=Bad.SINGLE, times=1)

        async def are_sent() -> bool:
            return (await self.chain.sender.sent()).bad >= before + SINGLE_FLOWS

        await until(are_sent, limit_s=RECOVERY_S, poll_s=_POLL_S)
        self.chain.sender.order(bad=Bad.NONE)

    async def _recovered(self) -> float:
        """Return the recovery time; raise TimeoutError naming the problem."""
        begun_s, deadline = time.monotonic(), LocalDeadline(RECOVERY_S, "the recovery of the chain")
        while True:
            problem = await wrong_with(self.chain)
            took_s = time.monotonic() - begun_s
            if not problem:
                return took_s
            if deadline.has_passed():
                raise TimeoutError(f"not recovered after {took_s:.0f} s: {problem}")
            await asyncio.sleep(_POLL_S)

    def _note_memory(self, first: Mapping[str, Usage]) -> None:
        for name, usage in self.chain.usage().items():
            self.report.rss_mib[name] = round(first[name].rss_mib, 1), round(usage.rss_mib, 1)
            if usage.rss_mib > 1.5 * first[name].rss_mib + 64:
                self.report.problems.append(
                    f"{name} has grown to {usage.rss_mib:.0f} from {first[name].rss_mib:.0f} MiB"
                )


def _restart(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


async def wrong_with(chain: Chain) -> str:
    """Return the first problem of a chain; "" if there is none."""
    clients = chain.clients
    try:
        async with asyncio.timeout(RECOVERY_S):
            paths = await clients.routes.status()
    except (MillraceError, TimeoutError) as error:
        return f"the path server does not answer: {error}"
    if paths.feed_is_silent:
        return "the path server says that the collector's feed is silent"
    if paths.flows < _KNOWN_FLOWS * len(chain.flows):
        return f"the path server knows {paths.flows} of {len(chain.flows)} flows"
    controller = None if clients.controller is None else clients.controller.newest
    if clients.controller is not None and (controller is None or not controller.settled):
        return "the controller has not settled"
    if controller is not None and len(controller.live) < controller.switches:
        return f"{len(controller.live)} of {controller.switches} switches are reconciled"
    return ""


@asynccontextmanager
async def deaf_subscribers(folder: Path, report: Report) -> AsyncIterator[None]:
    """Subscribe while the block lasts, over restarts, without reading anything."""
    tasks = [
        asyncio.create_task(_never_read(folder / f"{where}.sock", method, request, report))
        for where, method, request in _DEAF
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _never_read(socket: Path, method: str, request: bytes, report: Report) -> None:
    while True:
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            call = channel.unary_stream(method, None, None)(request)
            report.deaf_calls += 1
            while not call.done():
                await asyncio.sleep(1.0)


async def ended(chain: Chain, folder: Path, rng: np.random.Generator) -> Ending:
    """Leave a chain undisturbed for a while; return its state, and its problems."""
    problems = []
    sent, counters = await chain.settled_counters()
    chain.sender.order(rate=chain.load.rate)
    moves = (await chain.clients.paths.fresh()).counters.get("moves", 0)
    await asyncio.sleep(LAST_S)
    problem = await wrong_with(chain)
    problems += [problem] if problem else []
    state = await state_of(folder, chain.flows.topology)
    moves = (await chain.clients.paths.fresh()).counters.get("moves", 0) - moves
    event = await chain.event(rng, ANSWER_S)
    if not math.isfinite(event.reaction_ms):
        problems.append(f"the last congestion, of {event.link}, was not answered")
    sent_after, after = await chain.settled_counters()
    silently = sent_after.reports - sent.reports - sum(after.get(key, 0) - counters.get(key, 0) for key in COUNTED)
    return Ending(state, moves, silently, problems)


async def soak(minutes: float, load: Load, folder: Path) -> Report:
    """Disturb a chain for this long, then run an undisturbed one, and compare."""
    report, rng = Report(), np.random.default_rng(load.seed)
    disturbed_folder, calm_folder = folder / "disturbed", folder / "calm"
    disturbed_folder.mkdir()
    calm_folder.mkdir()
    async with running(load, disturbed_folder, lasting=True) as chain:
        async with deaf_subscribers(disturbed_folder, report):
            await Soak(chain, report, load.seed, _LONG_S if minutes >= _LONG_S else _SHORT_S).run(minutes)
        paths = [flow.path for flow in chain.flows.flows]
        first = await ended(chain, disturbed_folder, rng)
        report.status_max_s = round(chain.clients.longest_s, 3)
    async with running(load, calm_folder, lasting=True, paths=paths) as chain:

        async def is_well() -> bool:
            return await wrong_with(chain) == ""

        await until(is_well, limit_s=RECOVERY_S, poll_s=_POLL_S)
        second = await ended(chain, calm_folder, rng)
        truth = {(flow.src, flow.dst): path for flow, path in zip(chain.flows.flows, paths, strict=True)}
    for name, ending in (("disturbed", first), ("calm", second)):
        report.problems += [f"{name}: {problem}" for problem in ending.problems]
        if ending.moves:
            report.problems.append(f"{name}: {ending.moves} flows moved without a congestion")
        if ending.silently:
            report.problems.append(f"{name}: {ending.silently} reports are in no counter")
    report.problems += differences(first.state, second.state, truth)
    if report.status_max_s > STATUS_S * report.busy:
        report.problems.append(f"a status took {report.status_max_s} s")
    return report


def main() -> int:
    """Print the outcome of each disturbance, and a line of JSON; return 1 if there was a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=RATE, help="reports a second")
    parser.add_argument("--flows", type=int, default=FLOWS)
    parser.add_argument("--precedence", action="store_true", help="before other sessions of the machine (root)")
    options = parser.parse_args()
    if options.precedence:
        precede_others()
    load = Load(TOPOLOGIES[20], options.flows, options.rate, seed=options.seed, precedes=options.precedence)
    with tempfile.TemporaryDirectory(prefix="mr-chain-") as folder:
        report = asyncio.run(soak(options.minutes, load, Path(folder)))
    print(f"{'disturbance':<22} {'times':>5} {'longest recovery s':>18}   counted")
    for name, times in report.recovery_s.items():
        counted = ", ".join(f"{key} {count:,}" for key, count in sorted(report.counted.get(name, {}).items()))
        print(f"{name:<22} {len(times):>5} {max(times):>18.1f}   {counted}")
    print("\n".join(report.problems))
    print(json.dumps(asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
