"""Decisions about tasks, as resources."""

from __future__ import annotations

from controller.apiserver.resources.decision import DecisionSpec, Outcome, Placement
from controller.scheduling.framework.explaining import Explanation
from controller.scheduling.serving.decisions import line, refusals_of, scores_of
from controller.scheduling.tasks.deciding import Verdict
from controller.scheduling.tasks.profiles import TaskProfile


def decision_of(
    profile: TaskProfile, verdict: Verdict, why: Explanation, *, scheduler: str, begun_ns: int, decided_ns: int
) -> DecisionSpec:
    """Return the decision about a task, with the reasons centre by centre."""
    option, name = verdict.option, verdict.task.name
    outcome = Outcome.REFUSED if option is None else Outcome.DISPATCHED if verdict.start_s <= 0 else Outcome.WAITING
    chosen = [verdict.timed.options.items[row] for row in verdict.rows]
    placements = tuple(Placement(pod=name, node=each.offer[0]) for each in chosen)
    measured = None
    if verdict.rows and verdict.task.reads:
        measured = all(bool(verdict.timed.is_measured_way[row]) for row in verdict.rows)
    return DecisionSpec(
        subject_kind="task",
        subjects=(name,),
        outcome=outcome,
        profile=profile.name,
        scheduler=line(scheduler),
        reason=line(why.reason),
        placements=placements,
        refused=refusals_of(why),
        scores=scores_of(why),
        measured=measured,
        begun_ns=begun_ns,
        decided_ns=decided_ns,
    )


def plain_decision(
    task: str, outcome: Outcome, reason: str, centre: str, *, scheduler: str, profile: str, decided_ns: int
) -> DecisionSpec:
    """Return a decision that needs no scores: where a probe goes, and why."""
    return DecisionSpec(
        subject_kind="task",
        subjects=(task,),
        outcome=outcome,
        profile=profile,
        scheduler=line(scheduler),
        reason=line(reason),
        placements=(Placement(pod=task, node=centre),),
        decided_ns=decided_ns,
    )
