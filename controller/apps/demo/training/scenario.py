"""The demo's training: by gloo alone, then over the switch, where a worker and later the switch are killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from controller.apps.demo.training.fabric import Answers, TrainingFabric
from dataplane.errors import FabricError

RATE_BPS: Final = 200_000_000
AWAY_S: Final = 2.5
"""Downtime of the switch: longer than the controller waits before giving up on a job's switch."""
_DEAD_AFTER_S: Final = 1.0
_PATIENCE_S: Final = 300.0
"""Time limit for silent workers: PyTorch loads slowly on a busy machine."""
_LAST: Final = 10
"""Steps at the end of a phase whose losses are averaged."""
_JOB: Final = "demo"
GLOO, SWITCH_WAY, RING = "gloo", "the switch", "gloo's ring"


@dataclass(frozen=True, slots=True)
class Phase:
    """A range of training steps: what adds up, and how fast; `loss` is at its end.

    `steps_per_s` is that of the median step. `longest_s` is the longest step, including the detection of a death.
    """

    name: str
    workers: int
    way: str
    steps: int
    steps_per_s: float
    longest_s: float
    loss: float
    gloo_loss: float


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """Results of the demo: phases, each surviving worker's transports, our losses and gloo's by step.

    `difference` is the largest one between a worker's loss and its loss under gloo, while all workers were alive;
    `said` is the first worker's log.
    """

    workers: int
    killed: str
    killed_at: int
    switch_killed_at: int
    gloo: Phase
    phases: tuple[Phase, ...]
    losses: tuple[float, ...]
    gloo_losses: tuple[float, ...]
    difference: float
    same_parameters: bool
    said: tuple[str, ...]


def train(workers: int, steps: int, tell: Callable[[str], None]) -> TrainingOutcome:
    """Run the demo between namespaces; `tell` gets a line at each event. Raises MillraceError if it cannot run."""
    dies_at, ends_at, victim = steps // 3, 2 * steps // 3, workers - 1
    patient = TrainingFabric(workers, RATE_BPS, dead_after_s=_DEAD_AFTER_S, steps=steps, patience_s=_PATIENCE_S)
    with patient as fabric:
        tell(f"{workers} workers train {steps} steps by gloo alone")
        fabric.begin(GLOO, by_gloo=True)
        by_gloo = fabric.results(workers)
        tell(f"again from the beginning over the switch; in step {dies_at} h{victim + 1} is killed")
        fabric.begin(_JOB, dies=victim, dies_at=dies_at, tells=True, tells_at=ends_at)
        _expect(fabric.hear(), {"rank": victim, "ended": -9})
        tell(f"h{victim + 1} is dead, the others go on; in step {ends_at} the switch is killed")
        _expect(fabric.hear(), {"rank": 0, "middle": _JOB})
        tell(f"the switch is dead; it restarts, empty, in {AWAY_S:g} s: by then the job is given up")
        fabric.restart_switch(after_s=AWAY_S)
        answers = fabric.results(workers - 1)
    return outcome_of(workers, steps, by_gloo, answers)


def outcome_of(workers: int, steps: int, by_gloo: Answers, answers: Answers) -> TrainingOutcome:
    """Combine the workers' answers."""
    dies_at, ends_at = steps // 3, 2 * steps // 3
    bounds = (("all workers", 0, dies_at), ("one is dead", dies_at, ends_at), ("the switch was killed", ends_at, steps))
    ways = {rank: answer["first_by_ring"] for rank, answer in answers.items()}
    phases = tuple(
        _phase(
            name,
            range(begin, end),
            _way(ways, begin, end),
            answers,
            by_gloo=by_gloo,
            workers=workers - (begin > 0),
        )
        for name, begin, end in bounds
    )
    alive = range(dies_at + 1)
    pairs = ((answer["losses"], by_gloo[rank]["losses"]) for rank, answer in answers.items())
    return TrainingOutcome(
        workers,
        f"h{workers}",
        dies_at,
        ends_at,
        _phase("gloo alone", range(steps), GLOO, by_gloo, by_gloo=by_gloo, workers=workers),
        phases,
        tuple(_mean(answers, step) for step in range(steps)),
        tuple(_mean(by_gloo, step, answers) for step in range(steps)),
        max(abs(ours[step] - theirs[step]) for ours, theirs in pairs for step in alive),
        len({answer["parameters"] for answer in answers.values()}) == 1,
        tuple(answers[0]["said"]),
    )


def _phase(name: str, steps: range, way: str, answers: Answers, *, by_gloo: Answers, workers: int) -> Phase:
    begin, end = steps.start, steps.stop
    ended_s: list[float] = answers[0]["ended_s"]
    # The start of the first step is not recorded.
    first = max(begin, 1)
    took_s = [ended_s[step] - ended_s[step - 1] for step in range(first, end)]
    last = range(max(begin, end - _LAST), end)
    return Phase(
        name,
        workers,
        way,
        end - begin,
        1 / median(took_s),
        max(took_s),
        fmean(_mean(answers, step) for step in last),
        fmean(_mean(by_gloo, step, answers) for step in last),
    )


def _way(ways: Mapping[int, int | None], begin: int, end: int) -> str:
    """Return what added up the gradients of some steps; in a phase that began over the switch, both, by worker."""
    first = {f"h{rank + 1}": end if at is None or at >= end else max(at, begin) for rank, at in sorted(ways.items())}
    if set(first.values()) <= {end, begin}:
        by_start = {at: SWITCH_WAY if at == end else RING for at in first.values()}
    else:
        by_start = {at: SWITCH_WAY if at == end else f"{RING} from step {at}" for at in first.values()}
    if len(by_start) == 1:
        return next(iter(by_start.values()))
    hosts = {at: " ".join(host for host, when in first.items() if when == at) for at in by_start}
    return "; ".join(f"{way} ({hosts[at]})" for at, way in sorted(by_start.items()))


def _mean(answers: Answers, step: int, of: Answers | None = None) -> float:
    """Return the workers' mean loss in a step, only of those with an answer in the other training."""
    return fmean(answers[rank]["losses"][step] for rank in (answers if of is None else of))


def _expect(message: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if message != wanted:
        raise FabricError(f"a worker sent {message}, not {wanted}")
