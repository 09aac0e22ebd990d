"""Profiles: named lists of filters and of scores with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from msgspec import field

from controller.apiserver.resources.operator_devices import OperatorDevice, problem_of
from controller.cluster.hardware import Shares
from controller.common.errors import SchedulerError
from controller.scheduling.framework.columns import Flags
from controller.scheduling.framework.devices import LeastLeft
from controller.scheduling.framework.filters import NoSettings
from controller.scheduling.framework.plugins import make_policy
from controller.scheduling.framework.policies import DeviceChoice, Filter, Score
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import PendingPod
from dataplane.config import Strict

MOST_WEIGHT: Final = 1_000_000
_LEAST_LEFT: Final = LeastLeft(NoSettings())


class PolicySettings(Strict, frozen=True):
    """A policy by name, with its own settings; `weight` counts for scores."""

    policy: str
    weight: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


class Ties(StrEnum):
    """Tie-breaking between nodes with the most points: draw one by the seed, or take the first in order.

    Packed: the first for pods that ask for devices, so that several stay free on one node; drawn for all others.
    """

    DRAWN = "drawn"
    FIRST = "first"
    PACKED = "packed"


class ProfileSettings(Strict, frozen=True):
    """A way to decide: `filters` in order, then the weighted sum of `scores`; `seed` breaks ties.

    `devices` chooses the devices of the node.
    """

    name: str = "default"
    filters: tuple[PolicySettings, ...] = tuple(
        PolicySettings(policy=policy)
        for policy in ("ready", "location", "device-model", "device-threshold", "one-a-node", "fits", "network-need")
    )
    scores: tuple[PolicySettings, ...] = (
        PolicySettings(policy="network-cost", weight=2),
        PolicySettings(policy="stranding", weight=4),
        PolicySettings(policy="tree-cost", weight=2),
        PolicySettings(policy="device-fit"),
        PolicySettings(policy="image-locality"),
        PolicySettings(policy="least-used", settings={"but_for_devices": True}),
        PolicySettings(policy="spread"),
    )
    devices: PolicySettings = PolicySettings(policy="stranding")
    ties: Ties = Ties.PACKED
    seed: int = 0


ACCELERATED: Final = ProfileSettings(
    name="accelerated", scores=(*ProfileSettings().scores, PolicySettings(policy="operator-devices", weight=4))
)
"""As the default, but pods' operators are assigned to devices: programs are told; nodes where they gain count more."""


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
    """A profile with its policies constructed."""

    name: str
    filters: tuple[NamedFilter, ...]
    scores: tuple[WeightedScore, ...]
    devices: DeviceChoice = _LEAST_LEFT
    ties: Ties = Ties.PACKED
    seed: int = 0

    @classmethod
    def of(cls, settings: ProfileSettings) -> Profile:
        """Return the profile for settings; raise SchedulerError, naming it, for invalid ones."""
        try:
            filters = tuple(NamedFilter(one.policy, _filter(one)) for one in settings.filters)
            scores = tuple(WeightedScore(one.policy, one.weight, _score(one)) for one in settings.scores)
            devices = _devices(settings.devices)
        except SchedulerError as error:
            raise SchedulerError(f"profile {settings.name}: {error}") from None
        return cls(settings.name, filters, scores, devices, settings.ties, settings.seed)

    @property
    def is_local(self) -> bool:
        """True if each node's refusal depends on that node alone."""
        return all(one.policy.is_local for one in self.filters)

    def is_drawn(self, pod: PendingPod) -> bool:
        """Return whether ties for a pod are broken by a draw, not by order."""
        return self.ties is Ties.DRAWN or (self.ties is Ties.PACKED and not pod.request.devices)

    def lets_in(self, before: float, now: float) -> bool:
        """Return whether a filter lets pods use a device at its load now, and did not at the load before."""
        return any(one.policy.lets_in(before, now) for one in self.filters if hasattr(one.policy, "lets_in"))

    def seen(self, pod: PendingPod, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot that policies see: nothing is free on devices that a filter keeps from the pod."""
        usable: Flags | None = None
        for one in self.filters:
            devices = getattr(one.policy, "devices", None)
            if devices is not None and pod.request.devices and (found := devices(pod, snapshot)) is not None:
                usable = found if usable is None else usable & found
        return snapshot if usable is None or bool(usable.all()) else snapshot.narrowed(usable)

    def operator_devices(self, pod: PendingPod, snapshot: Snapshot, node: int) -> tuple[OperatorDevice, ...]:
        """Return the devices for a pod's operators on a node from the first score that assigns any; () if none does.

        Raise SchedulerError if a policy gives an invalid answer.
        """
        score = next((one for one in self.scores if hasattr(one.policy, "operator_devices")), None)
        if score is None or not pod.operators:
            return ()
        try:
            found: tuple[OperatorDevice, ...] = tuple(
                getattr(score.policy, "operator_devices")(pod, snapshot, node)  # noqa: B009 - optional for scores
            )
            kinds = (wanted.kind for wanted in pod.request.devices)
            problem = problem_of(found, (one.name for one in pod.operators), kinds)
        except Exception as error:  # a plug-in may raise anything
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise SchedulerError(f"policy {score.name}: pod {pod.name}: it failed: {said}") from error
        if problem:
            raise SchedulerError(f"policy {score.name}: pod {pod.name}: {problem}")
        return found

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the shares of a pod on a node where it fits; raise HardwareError if it does not."""
        if not pod.request.devices:
            return Shares(pod.request.cpu_milli, pod.request.memory_bytes)
        return self.devices.shares(pod, self.seen(pod, snapshot), node)


def profiles_of(settings: Sequence[ProfileSettings]) -> dict[str, Profile]:
    """Return profiles by name; raise SchedulerError for a duplicate name."""
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


def _devices(settings: PolicySettings) -> DeviceChoice:
    if settings.weight != 1:
        raise SchedulerError(f"policy {settings.policy}: a choice of devices has no weight")
    policy: DeviceChoice = make_policy(settings.policy, settings.settings, ("shares",))
    return policy
