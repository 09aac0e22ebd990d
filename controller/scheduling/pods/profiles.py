"""Profiles of pods: filters and scores of nodes, the choice of devices, and the breaking of ties."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol
from zlib import crc32

from msgspec.structs import replace

from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.cluster.hardware import Shares
from controller.scheduling.framework.plugins import PODS
from controller.scheduling.framework.policies import Flags, Ids, NoSettings
from controller.scheduling.framework.profiles import PolicySettings, Profile
from controller.scheduling.pods.devices import LeastLeft
from controller.scheduling.pods.kinds import settled, settled_by, usable_kinds
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod
from dataplane.config import Strict


class DeviceChoice(Protocol):
    """Chooses devices of a node."""

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the shares of a pod on a node where it fits; raise HardwareError if it does not."""
        ...


_LEAST_LEFT: Final = LeastLeft(NoSettings())


class Ties(StrEnum):
    """Tie-breaking between nodes with the most points: draw one by the seed, or take the first in order.

    Packed: the first for pods that ask for devices, so that several stay free on one node; drawn for all others.
    """

    DRAWN = "drawn"
    FIRST = "first"
    PACKED = "packed"


class PodProfileSettings(Strict, frozen=True):
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


ACCELERATED: Final = PodProfileSettings(
    name="accelerated",
    scores=(
        *PodProfileSettings().scores,
        PolicySettings(policy="operator-devices", weight=4),
        PolicySettings(policy="device-load", weight=2),
    ),
)
"""The default with pods' operators assigned to devices: programs are told, and nodes where they gain count more."""
STANDARD: Final = replace(ACCELERATED, name="default")
"""The default of the daemon, which knows the operators and loads by which it chooses among kinds of devices."""


@dataclass(frozen=True)
class PodProfile(Profile[PendingPod, Snapshot]):
    """A profile of pods with its policies constructed."""

    kind = PODS
    filter_methods: ClassVar[tuple[str, ...]] = ("passes", "reason", "is_local")

    devices: DeviceChoice = _LEAST_LEFT
    ties: Ties = Ties.PACKED
    seed: int = 0

    @property
    def is_local(self) -> bool:
        """True if each node's refusal depends on that node alone."""
        return all(getattr(named.policy, "is_local") for named in self.filters)  # noqa: B009 - of filters of pods

    def pick(self, subject: PendingPod, candidates: Snapshot, best: Ids) -> int:  # noqa: ARG002 - all are equally good
        """Return one of the best nodes: drawn from the seed and the pod's name, or the first."""
        is_drawn = self.ties is Ties.DRAWN or (self.ties is Ties.PACKED and not subject.request.devices)
        return int(best[crc32(f"{self.seed}/{subject.name}".encode()) % len(best) if is_drawn else 0])

    def lets_in(self, before: float, now: float) -> bool:
        """Return whether a filter admits pods to a device at its present load but did not at the previous one."""
        return any(named.policy.lets_in(before, now) for named in self.filters if hasattr(named.policy, "lets_in"))

    def seen(self, subject: PendingPod, candidates: Snapshot) -> Snapshot:
        """Return the snapshot that policies see: nothing is free on devices that a filter keeps from the pod.

        Where it accepts several kinds of devices, only those of the best kind on each node are free.
        """
        usable: Flags | None = None
        for named in self.filters:
            devices = getattr(named.policy, "devices", None)
            if (
                devices is not None
                and subject.request.devices
                and (allowed := devices(subject, candidates)) is not None
            ):
                usable = allowed if usable is None else usable & allowed
        seen = candidates if usable is None or bool(usable.all()) else candidates.narrowed(usable)
        return seen.narrowed(usable_kinds(self.scores, subject, seen)) if subject.request.is_open else seen

    def operator_devices(
        self, pod: PendingPod, snapshot: Snapshot, node: int, shares: Shares | None = None
    ) -> tuple[OperatorDevice, ...]:
        """Return the devices for a pod's operators on a node, with these shares of it; () if no score assigns any.

        Raise SchedulerError if a policy gives an invalid answer.
        """
        if not pod.operators:
            return ()
        if shares is not None:
            pod = settled_by(pod, shares, snapshot.columns.nodes[node])
        kinds = [kind for wanted in pod.request.devices for kind in wanted.kinds]
        operators = [operator.name for operator in pod.operators]
        return self.assigned(pod, snapshot, node, operators=operators, devices=kinds)

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the shares of a pod on a node where it fits; raise HardwareError if it does not."""
        if not pod.request.devices:
            return Shares(pod.request.cpu_milli, pod.request.memory_bytes)
        seen = self.seen(pod, snapshot)
        # Several parts are chosen together, as they were found to fit.
        pod = settled(pod, seen, node) if len(pod.request.devices) == 1 else pod
        return self.devices.shares(pod, seen, node)

    @classmethod
    def _others(cls, settings: Any) -> dict[str, Any]:  # noqa: ANN401 - settings of pods
        devices = cls._policy(settings.devices, ("shares",), "a choice of devices")
        return {"devices": devices, "ties": settings.ties, "seed": settings.seed}
