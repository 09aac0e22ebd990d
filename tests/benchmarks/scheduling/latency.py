"""Decision latency at 16 nodes, on one core, while training runs in a process, and while it is stopped.

Networks of the specification's sizes (hidden 512, feed-forward 512), a decision per millisecond on the bursty family;
the time covers deciding, not leaving the experience. Rounds with training and rounds in which its process is stopped
alternate in one run. The deciding process is pinned to one core, the training one to the others; as root both have
priority over everything else (nice -15 and -10), so that training makes progress on a busy machine. It trains with
batches of 16, so that weights are published during the run: with the specification's 8 of 128 a step of `tokens` takes
minutes.

- decision_p50_us, decision_p99_us: `tokens` with training. p99_ratio_training: its p99 over that without.
- flat_p50_us: `flat` with training.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from controller.learning.agent.agents import agent_of, new_checkpoint
from controller.learning.agent.settings import AgentSettings, NetworkSettings, TrainingSettings
from controller.learning.agent.training.process import ProcessTraining
from controller.learning.inputs.bursty import BurstySettings
from controller.learning.training.given import Given, LearningSettings, read_given
from controller.learning.values import Experience, Observation

PERIOD_NS: Final = 1_000_000
ROUNDS: Final = 4
DECISIONS: Final = 2_000
FIRST: Final = 1_200
"""Warm-up decisions: afterwards the buffer is full and training runs."""
_PRIORITY, _TRAINING = -15, -10
Form = Literal["tokens", "flat"]
FORMS: Final[tuple[Form, ...]] = ("tokens", "flat")


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of decisions with training and without; late ones, versions published, training's share of a core."""

    form: Form
    with_ns: npt.NDArray[np.int64]
    without_ns: npt.NDArray[np.int64]
    late: int
    versions: int
    training_share: float


class _Play:
    """A run that goes on and on, its episodes one after another."""

    def __init__(self, given: Given[Any]) -> None:
        self._environment = given.environment
        self._episode = 0
        self.seen: Observation = given.environment.start(0)

    @property
    def view(self) -> Any:
        """Readable state."""
        return self._environment.view

    def step(self, action: int) -> Experience:
        """Act; restart at the end of the input."""
        step = self._environment.step(action)
        experience = Experience(self.seen, action, step.reward, step.observation, step.elapsed_ns)
        if step.observation is None:
            self._episode += 1
        self.seen = step.observation or self._environment.start(self._episode)
        return experience


def timed(form: Form, *, rounds: int, decisions: int) -> Timed:
    """Time decisions of a form in this process, which is kept on one core."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    settings = AgentSettings(
        network=NetworkSettings(form=form),
        training=TrainingSettings(batch=16, batches=2, optimiser="adam", learning_rate=1e-4),
    )
    given = read_given("bursty", LearningSettings(bursty=BurstySettings(tasks=10_000)), 0)
    play = _Play(given)
    # Version 0 would leave decisions to the fallback.
    start = replace(new_checkpoint(settings, play.seen, given.kind), version=1)
    agent = agent_of(start, given.rules(0)["round-robin"], "process")
    training = agent.training
    assert isinstance(training, ProcessTraining)
    child = training.process_id
    os.sched_setaffinity(child, cores[1:] or cores)
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, child, _TRAINING)

    def played(count: int) -> list[int]:
        took_ns = []
        due_ns = time.monotonic_ns()
        for _ in range(count):
            due_ns = max(due_ns + PERIOD_NS, time.monotonic_ns())
            time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
            began_ns = time.perf_counter_ns()
            decision = agent.decide(play.seen, play.view)
            took_ns.append(time.perf_counter_ns() - began_ns)
            agent.learn(play.step(decision.action))
        return took_ns

    try:
        played(FIRST)
        version, late = agent.published.weights.version, agent.decider.counts["late"]
        with_ns: list[int] = []
        without_ns: list[int] = []
        used_s = took_s = 0.0
        for _ in range(rounds):
            before_s, began_s = _processor_s(child), time.monotonic()
            with_ns += played(decisions)
            used_s, took_s = used_s + _processor_s(child) - before_s, took_s + time.monotonic() - began_s
            os.kill(child, signal.SIGSTOP)
            without_ns += played(decisions)
            os.kill(child, signal.SIGCONT)
        late = agent.decider.counts["late"] - late
        versions = agent.published.weights.version - version
    finally:
        os.kill(child, signal.SIGCONT)
        agent.close()
    return Timed(form, np.array(with_ns), np.array(without_ns), late, versions, used_s / took_s)


def _processor_s(pid: int) -> float:
    """Return how long a process has had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(*, quick: bool = False) -> dict[str, float]:
    """Time both forms, each in a process of its own, and return the figures."""
    context = multiprocessing.get_context("spawn")
    results = {}
    for form in FORMS:
        # Not a daemon: it starts the process that trains.
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            results[form] = pool.submit(timed, form, rounds=1 if quick else ROUNDS, decisions=DECISIONS).result()
    load = os.getloadavg()[0]
    Console(width=130).print(table_of(list(results.values()), load))
    tokens = results["tokens"]
    return {
        "decision_p50_us": _us(tokens.with_ns, 50),
        "decision_p99_us": _us(tokens.with_ns, 99),
        "p99_ratio_training": _us(tokens.with_ns, 99) / _us(tokens.without_ns, 99),
        "flat_p50_us": _us(results["flat"].with_ns, 50),
    }


def table_of(timings: Sequence[Timed], load: float) -> Table:
    """Return two lines for each form."""
    columns = ("p50, us", "p90, us", "p99, us", "late", "versions", "training had of a core")
    table = Table("network", "training", *columns, title=f"A decision a millisecond at 16 nodes; load {load:.1f}")
    for timing in timings:
        for name, took_ns in (("in a process", timing.with_ns), ("stopped", timing.without_ns)):
            figures = [f"{_us(took_ns, percent):,.0f}" for percent in (50, 90, 99)]
            of_training = (
                (str(timing.versions), f"{timing.training_share:.0%}") if took_ns is timing.with_ns else ("", "")
            )
            table.add_row(
                timing.form, name, *figures, str(timing.late) if took_ns is timing.with_ns else "", *of_training
            )
    return table


def _us(took_ns: npt.NDArray[np.int64], percent: float) -> float:
    return float(np.percentile(took_ns, percent)) / 1e3
