"""Pods with a chosen node whose binding is not confirmed yet.

A kube-scheduler binds asynchronously: when it asks about a pod, the previous one may be on its way to a node not
known here. A pod that depends on where that one goes waits for it, for a short time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from controller.scheduling.extender import objects
from controller.scheduling.extender.annotations import PodAnnotations, matches
from dataplane.clock import Clock

_FORGOTTEN_NS: Final = 2_000_000_000
"""Time after which an unbound pod is dropped; kube-scheduler will ask about it again."""


@dataclass(slots=True)
class Unbound:
    """Pods that passed a filter, until they are bound; `is_known` returns whether a uid is on a node by now."""

    clock: Clock
    is_known: Callable[[str], bool]
    _pods: dict[str, tuple[objects.Pod, PodAnnotations, int]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, pod: objects.Pod, annotations: PodAnnotations) -> None:
        """Record that a node was found for a pod."""
        self._forget_old()
        self._pods[pod.metadata.uid] = pod, annotations, self.clock.now_ns() + _FORGOTTEN_NS

    def discard(self, uid: str) -> None:
        """Record that a pod was bound, or will not be."""
        self._pods.pop(uid, None)
        self.wake()

    def __len__(self) -> int:
        return len(self._pods)

    def wake(self) -> None:
        """Wake the waiters to check again."""
        self._changed.set()

    async def settled(self, pod: objects.Pod, annotations: PodAnnotations, wait_s: float) -> bool:
        """Wait until all pods that a pod depends on have a node; return False if that takes longer than `wait_s`."""
        if not annotations.peers:
            return True
        try:
            async with asyncio.timeout(wait_s):
                while self._must_wait(pod, annotations):
                    # No other task runs between the check and this line, so no change is lost.
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _must_wait(self, pod: objects.Pod, annotations: PodAnnotations) -> bool:
        """Return whether an unbound pod is a peer of the pod, or takes bandwidth itself."""
        self._forget_old()
        return any(
            uid != pod.metadata.uid
            and (any(need.min_bps for need in others.peers) or any(matches(need, other) for need in annotations.peers))
            for uid, (other, others, _) in self._pods.items()
        )

    def _forget_old(self) -> None:
        now_ns = self.clock.now_ns()
        for uid in [uid for uid, (*_, until_ns) in self._pods.items() if until_ns <= now_ns or self.is_known(uid)]:
            del self._pods[uid]
