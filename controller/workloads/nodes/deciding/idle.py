"""Idle pods, and how long they may stay idle; pure.

A pod is idle while its containers use little CPU time, its devices compute little for it, and little traffic passes
through its network namespace. That namespace is its host's, shared with other pods: while one of them communicates,
none counts as idle. Of a shared device, use that cannot be attributed to a pod counts for each of its holders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from controller.apiserver.resources.hardware import DeviceShare
from controller.cluster.hardware.requests import WHOLE
from controller.workloads.nodes.deciding.values import IdleTerms
from dataplane.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of a pod up to a moment: CPU time of all its containers, and the start of its idle time."""

    time_ns: int
    cpu_ns: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class DeviceActivity:
    """Use of a device: the share of time in which it computed, None if unknown, and the shares of pods by name.

    `others` is the share of processes that belong to no pod here. Without any process, use is counted by device alone.
    """

    busy: float | None = None
    pods: Mapping[str, float] = field(default_factory=dict)
    others: float = 0.0

    @property
    def total(self) -> float | None:
        """Share of time in which it worked for anybody: processes also use engines that `busy` leaves out."""
        known = [share for share in (self.busy, *self.pods.values(), self.others or None) if share is not None]
        return max(known, default=None)

    def of(self, pod: str, *, shared: bool) -> float | None:
        """Return what it does for a pod that holds it, at most; None if unknown."""
        if shared and (self.pods or self.others):
            return max(self.pods.get(pod, 0.0), self.others)
        return self.total


NO_ACTIVITY: Final = DeviceActivity()


def device_share(
    pod: str, held: Iterable[DeviceShare], activities: Mapping[int, DeviceActivity], terms: IdleTerms
) -> float:
    """Return the largest share of time that one of a pod's devices spends on it."""
    unknown = 1.0 if terms.unknown_device_is_busy else 0.0
    shares = (activities.get(share.number, NO_ACTIVITY).of(pod, shared=share.thousandths < WHOLE) for share in held)
    return max((unknown if share is None else share for share in shares), default=0.0)


def observe(
    before: Activity | None,
    now_ns: int,
    cpu_ns: int,
    network_bps: int | None,
    terms: IdleTerms,
    *,
    device: float = 0.0,
) -> Activity:
    """Return a pod's activity after a reading of its usage; `network_bps` is None if it has no network.

    `device` is the largest share of time that one of its devices spent on it.
    """
    if before is None or cpu_ns < before.cpu_ns or now_ns <= before.time_ns:
        return Activity(now_ns, cpu_ns, now_ns)
    share = (cpu_ns - before.cpu_ns) / (now_ns - before.time_ns)
    is_busy = share > terms.cpu_share or (network_bps or 0) > terms.network_bps or device > terms.device_share
    return Activity(now_ns, cpu_ns, now_ns if is_busy else before.since_ns)


def limit_s(
    own: float | Literal["never"] | None,
    image: str,
    copies: Mapping[str, int],
    starts_ns: Mapping[str, int],
    terms: IdleTerms,
) -> float | None:
    """Return how long a pod of an image may be idle, None for ever; `own` is its own limit.

    The last pod of an image that is slow to start may be idle longer. `copies` are the numbers of pods of each image on
    this node, `starts_ns` the duration of each image's last start.
    """
    limit = terms.limit_s if own is None else own
    if limit is None or limit == "never":
        return None
    is_slow = starts_ns.get(image, 0) > terms.slow_start_ns
    return limit * terms.last_copy_factor if is_slow and copies.get(image, 0) <= 1 else limit


def idle_reason(activity: Activity, now_ns: int, limit: float) -> str | None:
    """Return why an idle pod must go, None while it may stay."""
    idle_s = (now_ns - activity.since_ns) / NS_PER_S
    return f"idle for {idle_s:.0f} s, its limit is {limit:g} s" if idle_s >= limit else None
