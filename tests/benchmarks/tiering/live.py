"""Decisions compared live on the same requests: rules, and a network that learned on this pool before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from msgspec.structs import replace as replace_settings
from rich.console import Console
from rich.table import Table

from controller.learning.agent.settings import AgentSettings, DecisionSettings, NetworkSettings, TrainingSettings
from controller.learning.inputs.blocks import BlockSettings
from controller.learning.policy.settings import LearnSettings, LiveSettings
from controller.memory.pool.deciding import Decider, policy_of, rule_of
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.replay import Played, Timed, load_blocks, replay, trace
from controller.memory.pool.settings import Rule
from dataplane.clock import NS_PER_MS, NS_PER_S
from tests.benchmarks.scheduling.cases import DATA
from tests.benchmarks.tiering.world import BLOCK_BYTES, MIB, World, world

FILE = DATA / "cloudPhysicsIO.csv"
RULES: tuple[Rule, ...] = ("lru", "fast-only", "data-local")
AGENT = AgentSettings(
    network=NetworkSettings(form="tokens", hidden=32, heads=2, layers=1, feed_forward=64, dropout=0.0, deviation=0.2),
    training=TrainingSettings(
        discount=0.0,
        buffer=16_384,
        start=512,
        batches=4,
        train_every=64,
        publish_every=256,
        remove_sampled=False,
        drop_duplicates=False,
        optimiser="adam",
        learning_rate=0.003,
        half_steps=200,
        loss="huber",
    ),
    decisions=DecisionSettings(precision="float32", tolerance=0.1),
)
"""A small network; data-local chooses among hosts that it thinks nearly as good, and decides until it is trained.

The reward is the specification's, in its both branches.
"""
LATENCY_UNIT_NS = 5 * NS_PER_MS
"""Near the usual latency, so that utilisation and latency weigh alike."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Lengths in real seconds: of learning, and of rounds in which each decider plays the same part of the trace.

    Both begin in a burst of the trace: of 300 to 500 requests a second as stamped, while between bursts come three. So
    time is stretched, not compressed: a second of the trace takes `stretch`.
    """

    learning_stretch: int
    stretch: int
    learning_s: int
    rounds: int
    round_s: int


WHOLE = Plan(learning_stretch=20, stretch=40, learning_s=150, rounds=6, round_s=18)
QUICK = Plan(learning_stretch=20, stretch=40, learning_s=40, rounds=1, round_s=6)
FAST_BYTES = 2 * MIB
"""So little that evictions begin within a second or two."""
LESSON_AT_S, ROUNDS_AT_S = 5_621, 1_781
"""Times of the trace at which the bursts have begun; what is learned from is not what is compared on."""


def measure(*, quick: bool) -> dict[str, float | None]:
    """Return the mean response of each rule over that of the network; None for all without the trace."""
    if not FILE.exists():
        return {}
    with world(fast_bytes=FAST_BYTES) as made:
        return made.fabric.call_in("h1", lambda: _measured(made, QUICK if quick else WHOLE))


def _measured(made: World, plan: Plan) -> dict[str, float | None]:
    requests = trace(FILE, BlockSettings(time_compression=1, extent_bytes=BLOCK_BYTES))
    (lesson,) = _cut(requests, LESSON_AT_S, [plan.learning_s], plan.learning_stretch)
    rounds = _cut(requests, ROUNDS_AT_S, [plan.round_s] * plan.rounds, plan.stretch)
    learn = LearnSettings(agent=AGENT, latency_unit_ns=LATENCY_UNIT_NS, load_features=True)
    shadow = LiveSettings(
        checkpoint=str(made.folder / "agent.ckpt"),
        shadow=True,
        learn=learn,
        deadline_ns=20 * NS_PER_MS,
        fallback="data-local",
    )
    live = replace_settings(shadow, shadow=False)
    played: dict[str, list[Played]] = {name: [] for name in (*RULES, "tokens")}
    with MemoryPool(made.settings, Decider(rule_of("random"), policy_of(shadow))) as pool:
        load_blocks(pool, [timed for part in (lesson, *rounds) for timed in part])
        pool.measure()
        pool.decider.open()
        learned = replay(pool, lesson)
        pool.decider.close()
        print(f"learned from {learned.requests} requests, {learned.evicted_bytes / MIB:.0f} MiB evicted")
        print(pool.decider.standing)
        network = Decider(rule_of("data-local"), policy_of(live))
        network.open()
        try:
            for number, part in enumerate(rounds):
                # In another order each round: what else the machine does shall not meet the same one.
                for name, parts in (*played.items(),)[number % 4 :] + (*played.items(),)[: number % 4]:
                    pool.decider = network if name == "tokens" else Decider(rule_of(name))  # type: ignore[arg-type]
                    pool.clear_caches()
                    parts.append(replay(pool, part))
        finally:
            network.close()
        print(f"live: {network.standing}")
        pool.clear_caches()
        lost = sum(pool.catalogue.blocks[key].version == 0 for key in list(pool.catalogue.blocks)) + len(
            pool.mover.lost
        )
    _show(played, plan)
    assert lost == 0
    return {f"live_tokens_over_{name.replace('-', '_')}": _over(played[name], played["tokens"]) for name in RULES}


def _cut(requests: Sequence[Timed], at_s: int, lengths_s: Sequence[int], stretch: int) -> list[Sequence[Timed]]:
    """Return successive parts of the trace from a stamp on, each of so many seconds of stretched time."""
    parts: list[Sequence[Timed]] = []
    begin_ns = at_s * NS_PER_S * stretch
    for length_s in lengths_s:
        end_ns = begin_ns + length_s * NS_PER_S
        stretched = (replace(timed, at_ns=timed.at_ns * stretch) for timed in requests)
        part = [timed for timed in stretched if begin_ns <= timed.at_ns < end_ns]
        assert part, f"the trace ends before {end_ns} ns"
        parts.append(part)
        begin_ns = end_ns
    return parts


def _over(theirs: Sequence[Played], ours: Sequence[Played]) -> float:
    """Return the median over rounds of their mean response over ours."""
    pairs = zip(theirs, ours, strict=True)
    return median(their.mean_response_ns / our.mean_response_ns for their, our in pairs)


def _response_us(parts: Sequence[Played]) -> float:
    """Return the mean response of all requests of some parts."""
    counts = [part.requests for part in parts]
    return float(np.average([part.mean_response_ns for part in parts], weights=counts)) / 1e3


def _show(played: dict[str, list[Played]], plan: Plan) -> None:
    each = f"{plan.rounds} x {plan.round_s} s each"
    table = Table(title=f"cloudPhysicsIO, a burst, {plan.stretch} times as slow, {each}")
    columns = (
        "decider",
        "requests",
        "failed",
        "response us",
        "median round",
        "p99 us",
        "latency us",
        "wait us",
        "remote MB",
        "evicted MB",
        "late ms",
    )
    for column in columns:
        table.add_column(column)
    for name, parts in played.items():
        figures = (
            name,
            sum(part.requests for part in parts),
            sum(part.failed for part in parts),
            f"{_response_us(parts):.0f}",
            f"{median(part.mean_response_ns for part in parts) / 1e3:.0f}",
            f"{max(part.p99_response_ns for part in parts) / 1e3:.0f}",
            f"{np.mean([part.mean_latency_ns for part in parts]) / 1e3:.0f}",
            f"{np.mean([part.mean_wait_ns for part in parts]) / 1e3:.0f}",
            f"{sum(part.remote_bytes for part in parts) / 1e6:.0f}",
            f"{sum(part.evicted_bytes for part in parts) / 1e6:.0f}",
            f"{max(part.late_ns for part in parts) / 1e6:.0f}",
        )
        table.add_row(*map(str, figures))
    Console(width=140).print(table)
