"""Explanations of decisions: each refusal and each score with its reason, by the same pure policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.scheduling.framework.deciding import Examined
from controller.scheduling.framework.policies import C, Ids, Longs, S
from controller.scheduling.framework.profiles import Profile


@dataclass(frozen=True, slots=True)
class Refused:
    """A candidate by name, and the first filter that refuses it."""

    name: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Scored:
    """One score's unweighted points for a candidate."""

    policy: str
    weight: int
    points: int
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible candidate by name, with its points by score; `points` is their weighted sum."""

    name: str
    points: int
    scores: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Candidates, best first, and refused ones in order, each up to the requested number.

    `choice` is the name of the chosen one, None if there is none; `refused_by` counts all refused ones by filter,
    `passed` all others, and `equal` those with as many points as the chosen one. `summary` is the decision as one line.
    """

    subject: str
    profile: str
    choice: str | None
    candidates: tuple[Candidate, ...]
    refused: tuple[Refused, ...]
    refused_by: tuple[tuple[str, int], ...]
    passed: int
    equal: int
    summary: str

    @property
    def reason(self) -> str:
        """The summary with the reasons of refusals, whose figures change from one decision to the next."""
        if self.choice is not None:
            return self.summary
        reasons: dict[str, dict[str, str]] = {}
        for refused in self.refused:
            reasons.setdefault(refused.policy, {}).setdefault(refused.reason, refused.name)
        counts = ", ".join(f"{count} by {policy}" for policy, count in self.refused_by)
        words = ", ".join(
            f"{count} by {policy}{_example(reasons.get(policy, {}))}" for policy, count in self.refused_by
        )
        return self.summary.replace(counts, words) if counts else self.summary


def _example(reasons: Mapping[str, str]) -> str:
    """Return the first of a filter's reasons, with the candidate that it is about if others have other reasons."""
    if not reasons:
        return ""
    reason, name = next(iter(reasons.items()))
    return f" ({reason})" if len(reasons) == 1 else f" ({name}: {reason})"


def refusals_in_words(
    profile: Profile[S, C], subject: S, examined: Examined[C], numbers: Ids, name_of: Callable[[int], str]
) -> Iterator[Refused]:
    """Yield why each of these candidates is refused; `name_of` returns the name of a candidate."""
    by = examined.refuser[numbers]
    reasons: dict[int, str] = {}
    for filter_number in np.unique(by).tolist():
        refused = numbers[by == filter_number]
        why = _reasons(profile.filters[filter_number].policy, subject, examined.candidates, refused)
        reasons.update(zip(refused.tolist(), why, strict=True))
    for number, filter_number in zip(numbers.tolist(), by.tolist(), strict=True):
        yield Refused(name_of(number), profile.filters[filter_number].name, reasons[number])


def scores_in_words(
    profile: Profile[S, C], subject: S, examined: Examined[C], places: Ids, name_of: Callable[[int], str]
) -> Iterator[Candidate]:
    """Yield the points of candidates at some places of `examined.passing`, with their reasons."""
    numbers, columns = examined.passing[places], []
    for score, all_points in zip(profile.scores, examined.points, strict=True):
        points = all_points[places]
        why = _reasons(score.policy, subject, examined.candidates, numbers, points)
        columns.append((score, points.tolist(), why))
    for row, (number, total) in enumerate(zip(numbers.tolist(), examined.total[places].tolist(), strict=True)):
        scores = tuple(Scored(score.name, score.weight, points[row], why[row]) for score, points, why in columns)
        yield Candidate(name_of(number), total, scores)


def _reasons(policy: Any, subject: S, candidates: C, numbers: Ids, *points: Longs) -> Sequence[str]:  # noqa: ANN401
    several = getattr(policy, "reasons", None)
    if several is not None:
        reasons: Sequence[str] = several(subject, candidates, numbers, *points)
        return reasons
    return [policy.reason(subject, candidates, number) for number in numbers.tolist()]
