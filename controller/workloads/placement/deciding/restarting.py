"""Groups that start again as a whole when one of their pods fails: workers that cannot go on without each other.

The count of starts in the group's status is written first; pods of an earlier start are then old, and are replaced
together. So a controller that dies in between leaves nothing half done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import Pod, PodGroup
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import GroupPhase
from controller.workloads.placement.settings import RetrySettings
from controller.workloads.placement.values import DeletePod, Plan, SetGroup
from controller.workloads.placement.view import View, trouble_of
from dataplane.clock import NS_PER_S

_MOST_REASONS: Final = 8


def decide(
    view: View, group: PodGroup, pods: Sequence[Pod], now_ns: int, *, settings: RetrySettings, plan: Plan
) -> bool:
    """Plan that a bound group with a failed pod starts again, once its turn comes; return whether it has one."""
    if group.status.phase is not GroupPhase.BOUND:
        return False
    troubled = [pod for pod in pods if pod.metadata.deleting_ns is None and trouble_of(pod)]
    if not troubled or all(pod.status.phase is Phase.PENDING for pod in pods):
        return False  # a group that is lost as a whole is placed again as a whole
    troubles = [f"pod {pod.metadata.name} {trouble_of(pod)}" for pod in troubled]
    starts = group.status.starts_again
    if starts >= settings.most:
        why = f"{troubles[0]}; it has started again {starts} times"
        reasons = (why, *troubles[1:])[:_MOST_REASONS]
        plan.do(SetGroup(replace(group, status=replace(group.status, phase=GroupPhase.FAILED, reasons=reasons)), why))
        return True
    wait_s = min(settings.first_wait_s * 2.0 ** min(starts, 60), settings.longest_wait_s)
    since_ns = min(view.troubled_ns.get(pod.metadata.name, now_ns) for pod in troubled)
    due_ns = since_ns + int(wait_s * NS_PER_S)
    if now_ns < due_ns:
        plan.again_at(due_ns)
        return True
    why = f"{troubles[0]}: all of its pods start again, {starts + 1} of {settings.most} times"
    status = replace(group.status, phase=GroupPhase.PENDING, reasons=(why,), starts_again=starts + 1, bound=0)
    plan.do(SetGroup(replace(group, status=status), why))
    return True


def end_rest(group: PodGroup, pods: Sequence[Pod], plan: Plan) -> None:
    """Plan the end of a failed group's pods that still run: they wait for those that have failed."""
    for pod in pods:
        if pod.status.node is not None and pod.metadata.deleting_ns is None:
            plan.do(DeletePod(pod, f"its group {group.metadata.name} has failed"))
