"""Profiles: named lists of filters and of scores with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import field

from controller.schedulers.errors import SchedulerError
from controller.schedulers.framework.plugins import make_policy
from controller.schedulers.framework.policies import Filter, Score
from dataplane.config import Strict

MOST_WEIGHT: Final = 1_000_000


class PolicySettings(Strict, frozen=True):
    """A policy by name, with settings of its own; `weight` counts for scores."""

    policy: str
    weight: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


class ProfileSettings(Strict, frozen=True):
    """A way to decide: `filters` one after the other, then the weighted sum of `scores`; `seed` breaks ties."""

    name: str = "default"
    filters: tuple[PolicySettings, ...] = tuple(
        PolicySettings(policy=policy) for policy in ("ready", "location", "device-model", "fits", "network-need")
    )
    scores: tuple[PolicySettings, ...] = (
        PolicySettings(policy="network-cost", weight=2),
        PolicySettings(policy="least-used"),
        PolicySettings(policy="spread"),
    )
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NamedFilter:
    """A filter and its name."""

    name: str
    policy: Filter


@dataclass(frozen=True, slots=True)
class WeightedScore:
    """A score, its name and its weight."""

    name: str
    weight: int
    policy: Score


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile whose policies are made."""

    name: str
    filters: tuple[NamedFilter, ...]
    scores: tuple[WeightedScore, ...]
    seed: int = 0

    @classmethod
    def of(cls, settings: ProfileSettings) -> Profile:
        """Return the profile that settings ask for; raise SchedulerError, naming it, for what cannot be."""
        try:
            filters = tuple(NamedFilter(one.policy, _filter(one)) for one in settings.filters)
            scores = tuple(WeightedScore(one.policy, one.weight, _score(one)) for one in settings.scores)
        except SchedulerError as error:
            raise SchedulerError(f"profile {settings.name}: {error}") from None
        return cls(settings.name, filters, scores, settings.seed)

    @property
    def is_local(self) -> bool:
        """Whether each node's refusal depends on that node alone."""
        return all(one.policy.is_local for one in self.filters)


def profiles_of(settings: Sequence[ProfileSettings]) -> dict[str, Profile]:
    """Return profiles by name; raise SchedulerError for a name that stands twice."""
    found: dict[str, Profile] = {}
    for one in settings:
        if one.name in found:
            raise SchedulerError(f"profile {one.name} is there twice")
        found[one.name] = Profile.of(one)
    return found


def _filter(settings: PolicySettings) -> Filter:
    if settings.weight != 1:
        raise SchedulerError(f"policy {settings.policy}: a filter has no weight")
    policy: Filter = make_policy(settings.policy, settings.settings, ("passes", "reason", "is_local"))
    return policy


def _score(settings: PolicySettings) -> Score:
    if not 1 <= settings.weight <= MOST_WEIGHT:
        raise SchedulerError(f"policy {settings.policy}: a weight of {settings.weight} is not 1 to {MOST_WEIGHT}")
    policy: Score = make_policy(settings.policy, settings.settings, ("points", "reason"))
    return policy
