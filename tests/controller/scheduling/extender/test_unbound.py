"""Pods that are about to be bound, and when they are forgotten."""

from __future__ import annotations

from controller.scheduling.extender import objects
from controller.scheduling.extender.annotations import NOTHING
from controller.scheduling.extender.unbound import Unbound
from dataplane.clock import VirtualClock


def test_pod_never_bound_is_forgotten_without_waiters() -> None:
    clock = VirtualClock()
    unbound = Unbound(clock, lambda uid: uid == "uid-known")
    for number in range(100):
        unbound.note(objects.Pod(metadata=objects.ObjectMeta(name="p", uid=f"uid-{number}")), NOTHING)
        clock.advance_to(clock.now_ns() + 500_000_000)
    assert len(unbound) == 4
    unbound.note(objects.Pod(metadata=objects.ObjectMeta(name="p", uid="uid-known")), NOTHING)
    unbound.note(objects.Pod(metadata=objects.ObjectMeta(name="p", uid="uid-last")), NOTHING)
    assert len(unbound) == 4
