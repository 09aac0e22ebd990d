"""Small windows of an input that can be searched for the best decisions: their cost, rules' and agents'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from controller.learning.environment.pool import Pool
from controller.learning.inputs.ordering import Ordering
from controller.learning.oracles.improving import Plays, improve, nodes_of
from controller.learning.oracles.searching import Rewindable, beam, replay
from controller.learning.training.figures import Figures
from controller.learning.training.given import Given
from controller.learning.values import Chooser, Observation
from tests.benchmarks.scheduling.cases import Windows

ORACLE: Final = "oracle"
Makers = Mapping[str, Callable[[], Chooser[Any]]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Total response times of a window's tasks, in ns, by decider; the window begins at decision `first`."""

    first: int
    costs_ns: Mapping[str, int]


class _Environment(Rewindable[Any], Protocol):
    """Environment that can be rewound, and read by deciders."""

    @property
    def view(self) -> Any:
        """Readable state."""
        ...


@dataclass(frozen=True, slots=True)
class _Moment:
    """Start of a window, and its number of decisions."""

    environment: _Environment
    seen: Observation
    first: int
    tasks: int


def whole(given: Given[Any], plays: Plays, seed: int, figures: Mapping[str, Figures], *, search: bool) -> list[Cost]:
    """Return the mean response of the whole input as the only window's cost; the oracle is a search of all of it.

    It begins with the runs of the rules.
    """
    costs = {name: round(figure.mean_response_ns) for name, figure in figures.items()}
    pool = given.environment
    if search and isinstance(pool, Pool):
        starts = [_run_of(pool, rule, seed) for rule in given.rules(seed).values()]
        costs[ORACLE] = round(improve(pool, starts, plays, seed, homes=seed).mean_response_ns)
    return [Cost(0, costs)]


def _run_of(pool: Pool, rule: Chooser[Any], seed: int) -> tuple[int, ...]:
    taken = {}
    seen: Observation | None = pool.start(seed)
    while seen is not None:
        task, action = pool.task, rule.choose(seen, pool)
        taken[task] = action
        seen = pool.step(action).observation
    return nodes_of(pool, taken)


def costs(given: Given[Any], windows: Windows, seed: int, makers: Makers, *, search: bool) -> list[Cost]:
    """Return the cost of each window by decider; `search` adds the best that a beam or one of them finds."""
    return [_cost(moment, windows, makers, search=search) for moment in _moments(given, windows, seed)]


def _cost(moment: _Moment, windows: Windows, makers: Makers, *, search: bool) -> Cost:
    environment, seen = moment.environment, moment.seen
    saved = environment.save()
    costs = {}
    for name, make in makers.items():
        chooser = make()
        # Creating an agent resets the environment, to check that its network fits.
        environment.restore(saved)
        costs[name], _ = replay(environment, seen, moment.tasks, partial(_choice, chooser, environment))
    environment.restore(saved)
    if search:
        # The predicted time of waiting jobs counts, too: otherwise postponing long ones would look cheap.
        rest_ns = environment.rest_ns if isinstance(environment, Ordering) else _nothing
        best = beam(environment, seen, moment.tasks, windows.width, rest_ns=rest_ns)
        costs[ORACLE] = min(best.cost_ns, *costs.values())
        environment.restore(saved)
    return Cost(moment.first, costs)


def _nothing() -> int:
    return 0


def _choice(chooser: Chooser[Any], environment: _Environment, seen: Observation) -> int:
    return chooser.choose(seen, environment.view)


def _moments(given: Given[Any], windows: Windows, seed: int) -> Iterator[_Moment]:
    environment = given.environment
    if isinstance(environment, Ordering):
        yield from _at_once(environment, windows)
    elif isinstance(environment, Pool):
        yield from _midst(environment, windows, given.rules(seed)[windows.driver], seed)


def _at_once(whole: Ordering, windows: Windows) -> Iterator[_Moment]:
    """Yield windows of jobs that are all submitted at their beginning."""
    apart = len(whole.jobs) // (windows.count + 1)
    for first in range(apart, apart * windows.count + 1, apart):
        jobs = whole.jobs.window(first, windows.tasks, at_once=True)
        environment = Ordering(jobs, whole.settings)
        yield _Moment(environment, environment.start(0), first, len(jobs))


def _midst(pool: Pool, windows: Windows, driver: Chooser[Any], seed: int) -> Iterator[_Moment]:
    """Drive the pool through a run, and stop where windows begin."""
    apart = len(pool.model.workload) // (windows.count + 1)
    seen: Observation | None = pool.start(seed)
    for number in range(windows.count * apart + 1):
        if seen is None:
            return
        if number and number % apart == 0:
            yield _Moment(pool, seen, number, windows.tasks)
        seen = pool.step(driver.choose(seen, pool)).observation
