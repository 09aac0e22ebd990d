"""Profiles: named lists of filters and of scores with weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, Self

from msgspec import field

from controller.apiserver.resources.operator_devices import OperatorDevice, problem_of
from controller.common.errors import SchedulerError
from controller.scheduling.framework.plugins import Kind, make_policy
from controller.scheduling.framework.policies import C, Filter, Ids, S, Score
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

MOST_WEIGHT: Final = 1_000_000


class PolicySettings(Strict, frozen=True):
    """A policy by name, with its own settings; `weight` counts for scores."""

    policy: str
    weight: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamedFilter(Generic[S, C]):
    """A filter and its name."""

    name: str
    policy: Filter[S, C]


@dataclass(frozen=True, slots=True)
class WeightedScore(Generic[S, C]):
    """A score, its name and its weight."""

    name: str
    weight: int
    policy: Score[S, C]


class ProfileSettings(Protocol):
    """Settings of a profile of any kind."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def filters(self) -> tuple[PolicySettings, ...]:
        """Its filters, in order."""
        ...

    @property
    def scores(self) -> tuple[PolicySettings, ...]:
        """Its scores with their weights."""
        ...


@dataclass(frozen=True)
class Profile(ABC, Generic[S, C]):
    """A profile with its policies constructed: the base class for each kind of subject."""

    kind: ClassVar[Kind]
    filter_methods: ClassVar[tuple[str, ...]] = ("passes", "reason")

    name: str
    filters: tuple[NamedFilter[S, C], ...]
    scores: tuple[WeightedScore[S, C], ...]

    @classmethod
    def of(cls, settings: Any) -> Self:  # noqa: ANN401 - the settings of the kind
        """Return the profile for settings; raise SchedulerError, naming it, for invalid ones."""
        try:
            filters = tuple(
                NamedFilter(policy.policy, cls._policy(policy, cls.filter_methods, "a filter"))
                for policy in settings.filters
            )
            scores = tuple(
                WeightedScore(policy.policy, policy.weight, cls._score(policy)) for policy in settings.scores
            )
            return cls(settings.name, filters, scores, **cls._others(settings))
        except SchedulerError as error:
            raise SchedulerError(f"{cls.kind.profile} {settings.name}: {error}") from None

    @classmethod
    def by_name(cls, settings: Sequence[ProfileSettings]) -> dict[str, Self]:
        """Return profiles by name; raise SchedulerError for a duplicate name."""
        profiles: dict[str, Self] = {}
        for profile in settings:
            if profile.name in profiles:
                raise SchedulerError(f"duplicate {cls.kind.profile} {profile.name}")
            profiles[profile.name] = cls.of(profile)
        return profiles

    def seen(self, subject: S, candidates: C) -> C:  # noqa: ARG002 - for kinds that hide something
        """Return the candidates as policies see them."""
        return candidates

    @abstractmethod
    def pick(self, subject: S, candidates: C, best: Ids) -> int:
        """Return the candidate to choose among those with the most points."""

    def assigned(
        self, subject: S, candidates: C, number: int, *, operators: Sequence[str], devices: Sequence[DeviceKind]
    ) -> tuple[OperatorDevice, ...]:
        """Return the devices of operators on a candidate from the first score that assigns any; () if none does.

        `devices` are the kinds of device on the candidate. Raise SchedulerError if a policy gives an invalid answer.
        """
        score = next((score for score in self.scores if hasattr(score.policy, "operator_devices")), None)
        if score is None:
            return ()
        try:
            chosen: tuple[OperatorDevice, ...] = tuple(
                getattr(score.policy, "operator_devices")(subject, candidates, number)  # noqa: B009 - optional
            )
            problem = problem_of(chosen, operators, devices)
        except Exception as error:  # a plug-in may raise anything
            raise self.failed(score.name, subject, error) from error
        if problem:
            raise self.error(score.name, subject, problem)
        return chosen

    def failed(self, policy: str, subject: S, error: Exception) -> SchedulerError:
        """Return the error for a policy that raised one, in one line."""
        return self.error(policy, subject, f"failed: {' '.join(f'{type(error).__name__}: {error}'.split())}")

    def error(self, policy: str, subject: S, problem: str) -> SchedulerError:
        """Return the error for a policy's answer about a subject."""
        return SchedulerError(f"policy {policy}: {self.kind.noun} {subject.name}: {problem}")

    @classmethod
    def _others(cls, settings: Any) -> dict[str, Any]:  # noqa: ANN401, ARG003 - the settings of the kind
        """Return further fields of the kind."""
        return {}

    @classmethod
    def _score(cls, settings: PolicySettings) -> Score[S, C]:
        if not 1 <= settings.weight <= MOST_WEIGHT:
            raise SchedulerError(
                f"policy {settings.policy}: a weight of {settings.weight} is not between 1 and {MOST_WEIGHT}"
            )
        score: Score[S, C] = make_policy(cls.kind, settings.policy, settings.settings, ("points", "reason"))
        return score

    @classmethod
    def _policy(cls, settings: PolicySettings, methods: tuple[str, ...], role: str) -> Any:  # noqa: ANN401 - a policy
        """Return a policy other than a score."""
        if settings.weight != 1:
            raise SchedulerError(f"policy {settings.policy}: {role} has no weight")
        return make_policy(cls.kind, settings.policy, settings.settings, methods)
