"""The demo with every packet sent, and as a fluid with samples: the same flows move to the same paths.

A surge fills a link; both runs have the same topology, flows and seed, and every second packet carries telemetry. Flows
that move in both must take the same path; `ALIKE` of those that move in either must move in both, as the last and
lightest of them depend on measured rates of a few packets a second. First moves may be `WITHIN_NS` apart, and loads and
delays of all links, as the collector sees them before the surge, by the bounds below.

    .venv/bin/python -m tests.soak.fluid_decisions [--seeds N] [TOPOLOGY ...]
"""

from __future__ import annotations

import argparse
import io
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from rich.console import Console

from collectors.values import LinkState
from controller.apps.demo.live import LiveView
from controller.apps.demo.outcome import Outcome
from controller.apps.demo.prepare import prepare
from controller.apps.demo.scenario import Scenario, ScenarioSettings
from controller.apps.demo.settings import DemoSettings
from controller.apps.demo.virtual import VirtualRun
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.recorder import Recorder
from dataplane.clock import NS_PER_MS

TOPOLOGIES = ("abilene", "leaf-spine", "fat-tree-4")
SETTINGS = replace(
    DemoSettings(), scenario=ScenarioSettings(warm_up_s=0.7, before_s=0.8, during_s=1.0, after_s=0.1, hops_per_s=4000)
)
ALIKE = 0.75
WITHIN_NS = 2 * SETTINGS.decision_interval_ns
LOAD_WITHIN = 0.05
"""Difference of the mean load of all links, as a share of their rates."""
DELAY_WITHIN = 0.1
"""Difference of the mean delay of all links, as a share of it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One run: what moved where in answer to the surge, when first, and the means over links before it."""

    moves: frozenset[tuple[str, str, tuple[str, ...]]]
    first_ns: int | None
    load: float
    delay_ms: float


def answers(topology: str, seed: int) -> tuple[Answer, Answer]:
    """Return the answers with packets and with a fluid."""
    scenario = prepare(topology, None, SETTINGS.scenario).scenario
    return _answer(_run(scenario, seed, fluid=False)), _answer(_run(scenario, seed, fluid=True))


def differences(packets: Answer, fluid: Answer) -> list[str]:
    """Return what differs by more than it may, a phrase for each; empty if nothing."""
    found = []
    both, either = packets.moves & fluid.moves, packets.moves | fluid.moves
    if len({move[:2] for move in either}) < len(either) or len(both) < ALIKE * len(either):
        found.append(f"moves: {sorted(packets.moves ^ fluid.moves)}")
    if packets.first_ns is None or fluid.first_ns is None:
        found.append("a run in which nothing moved")
    elif abs(packets.first_ns - fluid.first_ns) > WITHIN_NS:
        found.append(f"first move at {packets.first_ns / NS_PER_MS:.0f} and {fluid.first_ns / NS_PER_MS:.0f} ms")
    if abs(packets.load - fluid.load) > LOAD_WITHIN:
        found.append(f"load {packets.load:.3f} and {fluid.load:.3f}")
    if abs(packets.delay_ms - fluid.delay_ms) > DELAY_WITHIN * packets.delay_ms:
        found.append(f"delay {packets.delay_ms:.3f} and {fluid.delay_ms:.3f} ms")
    return found


def _run(scenario: Scenario, seed: int, *, fluid: bool) -> Outcome:
    view = LiveView(scenario.topology, Console(file=io.StringIO()))
    database = open_path_database(":memory:")
    try:
        recorder = Recorder(database, max_records=1_000_000)
        return VirtualRun(scenario, SETTINGS, view, recorder, seed, fluid=fluid).run()
    finally:
        database.close()


def _answer(outcome: Outcome) -> Answer:
    moves = [move for move in outcome.moves if move.time_ns >= outcome.scenario.congest_ns]
    measured = [link for link in dict(outcome.snapshots)["before"].links.values() if link.age_ns is not None]
    return Answer(
        moves=frozenset((move.flow.src_host, move.flow.dst_host, move.new) for move in moves),
        first_ns=min((move.time_ns for move in moves), default=None),
        load=_mean(measured, "utilisation"),
        delay_ms=_mean(measured, "delay_mean_ns") / NS_PER_MS,
    )


def _mean(links: list[LinkState], figure: str) -> float:
    return float(np.mean([getattr(link, figure) for link in links]))


def main() -> None:
    """Compare each topology with each seed; exit with 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("topologies", nargs="*", default=TOPOLOGIES)
    options = parser.parse_args()
    failed = False
    for topology in options.topologies:
        for seed in range(1, options.seeds + 1):
            packets, fluid = answers(topology, seed)
            found = differences(packets, fluid)
            failed = failed or bool(found)
            first = [None if answer.first_ns is None else answer.first_ns / NS_PER_MS for answer in (packets, fluid)]
            print(
                f"{topology}, seed {seed}: {len(packets.moves)} and {len(fluid.moves)} moves, "
                f"{len(packets.moves & fluid.moves)} alike, first at {first} ms, "
                f"load {packets.load:.3f} and {fluid.load:.3f}, delay {packets.delay_ms:.3f} and "
                f"{fluid.delay_ms:.3f} ms: {'; '.join(found) or 'alike'}",
                flush=True,
            )
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
