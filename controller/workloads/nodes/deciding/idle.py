"""Idle pods, and how long they may stay idle; pure.

A pod is idle while its containers use little CPU time and little traffic passes through its network namespace. That
namespace is its host's, shared with other pods: while one of them communicates, none counts as idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.workloads.nodes.deciding.values import IdleTerms
from dataplane.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of a pod up to a moment: CPU time of all its containers, and the start of its idle time."""

    time_ns: int
    cpu_ns: int
    since_ns: int


def observe(before: Activity | None, now_ns: int, cpu_ns: int, network_bps: int | None, terms: IdleTerms) -> Activity:
    """Return a pod's activity after a reading of its usage; `network_bps` is None if it has no network."""
    if before is None or cpu_ns < before.cpu_ns or now_ns <= before.time_ns:
        return Activity(now_ns, cpu_ns, now_ns)
    share = (cpu_ns - before.cpu_ns) / (now_ns - before.time_ns)
    is_busy = share > terms.cpu_share or (network_bps or 0) > terms.network_bps
    return Activity(now_ns, cpu_ns, now_ns if is_busy else before.since_ns)


def limit_s(
    limit: float, image: str, copies: Mapping[str, int], starts_ns: Mapping[str, int], terms: IdleTerms
) -> float:
    """Return how long a pod of an image may be idle: longer if it is the last one of an image that is slow to start.

    `copies` are the numbers of pods of each image on this node, `starts_ns` the duration of each image's last start.
    """
    is_slow = starts_ns.get(image, 0) > terms.slow_start_ns
    return limit * terms.last_copy_factor if is_slow and copies.get(image, 0) <= 1 else limit


def idle_reason(activity: Activity, now_ns: int, limit: float) -> str | None:
    """Return why an idle pod must go, None while it may stay."""
    idle_s = (now_ns - activity.since_ns) / NS_PER_S
    return f"idle for {idle_s:.0f} s, its limit is {limit:g} s" if idle_s >= limit else None
