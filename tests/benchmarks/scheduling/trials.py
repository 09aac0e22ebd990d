"""Rules that are tried on an input, and agents that learn it and are tried: each a job of a process."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.learning.agent.agents import Agent, agent_of, new_checkpoint
from controller.learning.agent.records import Checkpoint, load_checkpoint
from controller.learning.agent.settings import AgentSettings
from controller.learning.oracles.improving import Plays
from controller.learning.training.figures import Figures
from controller.learning.training.given import Given
from controller.learning.training.keeping import Best
from controller.learning.training.trials import Point, evaluate, greedy, train
from controller.learning.values import Chooser
from tests.benchmarks.scheduling import windows
from tests.benchmarks.scheduling.cases import CASES, Case, Form, Windows
from tests.benchmarks.scheduling.windows import Cost, Makers

JobT = TypeVar("JobT")
FoundT = TypeVar("FoundT")
_EVERY: Final = 512
EXAMINED: Final = 999
"""The number of the lesson that nothing is learned from: the best state of an agent is chosen by it."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work of one process: all rules on an input (no form), or an agent of a form, with a seed."""

    case: str
    form: Form | None
    seed: int
    quick: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of a job: figures by decider, windows' costs, the curve of an agent, and CPU seconds."""

    job: Job
    figures: Mapping[str, Figures]
    windows: Sequence[Cost]
    curve: Sequence[Point] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def in_processes(do: Callable[[JobT], FoundT], jobs: Sequence[JobT], workers: int | None = None) -> Iterator[FoundT]:
    """Run jobs in processes, one per processor, and yield their results."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context) as pool:
        for done in as_completed([pool.submit(do, job) for job in jobs]):
            yield done.result()


def run(job: Job) -> Tried:
    """Do a job."""
    case = CASES[job.case]
    return _rules(case, job) if job.form is None else _agent(case, job, job.form)


def _rules(case: Case, job: Job) -> Tried:
    given = case.given(job.seed, quick=job.quick)
    began_s = time.process_time()
    figures = {name: evaluate(given, rule, job.seed) for name, rule in given.rules(job.seed).items()}
    tried_s = time.process_time() - began_s
    makers = {name: partial(_rule, given, name, job.seed) for name in figures}
    costs = _costs(case, job, given, makers, figures)
    return Tried(job, figures, costs, seconds={"tried": tried_s, "windows": time.process_time() - began_s - tried_s})


def _costs(case: Case, job: Job, given: Given[Any], makers: Makers, figures: Mapping[str, Figures]) -> Sequence[Cost]:
    """Return windows' costs; the job of the rules looks for the oracle's."""
    search = job.form is None
    if isinstance(case.windows, Windows):
        return windows.costs(given, case.windows, job.seed, makers, search=search)
    plays = Plays(50, 50, 200) if job.quick else case.windows
    return windows.whole(given, plays, job.seed, figures, search=search)


def _rule(given: Given[Any], name: str, seed: int) -> Chooser[Any]:
    return given.rules(seed)[name]


def _agent(case: Case, job: Job, form: Form) -> Tried:
    began_s = time.process_time()
    checkpoint, curve = learned(case, form, job.seed, quick=job.quick)
    trained_s = time.process_time() - began_s
    given = case.given(job.seed, form, quick=job.quick)

    def make() -> Any:
        return greedy(given, checkpoint, given.rules(job.seed)[case.fallback_of(form)])

    figures: dict[str, Figures] = {form: evaluate(given, make(), job.seed)}
    makers: Makers = {form: make}
    costs = _costs(case, job, given, makers, figures)
    seconds = {"trained": trained_s, "tried": time.process_time() - began_s - trained_s}
    return Tried(job, figures, costs, curve, seconds)


def learned(case: Case, form: Form, seed: int, *, quick: bool = False) -> tuple[Checkpoint, list[Point]]:
    """Return an agent of a case after its episodes, and its learning curve."""

    def lessons() -> Iterator[Given[Any]]:
        given = case.lesson(seed, 0, form, quick=quick)
        for episode in range(min(case.episodes, 2) if quick else case.episodes):
            if episode and not case.file:
                given = case.lesson(seed, episode, form, quick=quick)
            yield given

    examined = case.lesson(seed, EXAMINED, form, quick=quick) if case.examined_every else None
    return taught(case.agent(form, seed), lessons(), seed, case.fallback_of(form), examined, case.examined_every)


def taught(
    settings: AgentSettings,
    lessons: Iterable[Given[Any]],
    seed: int,
    fallback: str,
    examined: Given[Any] | None = None,
    every: int = 0,
) -> tuple[Checkpoint, list[Point]]:
    """Return an agent after lessons, each of them played once, and its learning curve; a rule is the fallback.

    Where there is an input to be `examined` on, it is tried there after each `every` lessons, and is returned as it was
    when its mean response was least. That input is none of those that are tried later.
    """
    agent: Agent[Any] | None = None
    curve: list[Point] = []
    best: Best | None = None
    for episode, given in enumerate(lessons):
        if agent is None:
            start = new_checkpoint(settings, given.environment.start(seed), given.kind)
            agent = agent_of(start, given.rules(seed)[fallback], "inline")
        points = train(given, agent, episodes=1, seed=1000 * (seed + 1) + episode, every=_EVERY)
        before = curve[-1].decisions if curve else 0
        curve += [replace(point, decisions=before + point.decisions, episode=episode) for point in points]
        if examined is not None and (episode + 1) % every == 0:
            best = best or Best(examined, 1000 * (seed + 1) + EXAMINED, fallback)
            best.look_at(_checkpoint(agent))
    if agent is None:
        raise ValueError("an agent without lessons")
    kept = None if best is None else best.checkpoint
    return kept or _checkpoint(agent), curve


def _checkpoint(agent: Agent[Any]) -> Checkpoint:
    with tempfile.TemporaryDirectory(prefix="millrace-learning-") as folder:
        path = Path(folder) / "agent"
        agent.save(path)
        return load_checkpoint(path)
