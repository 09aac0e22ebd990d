"""Groups: their pods, created from a template, replaced, removed and placed again after failures; and their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import Pod, PodGroup
from controller.apiserver.resources.pod import Phase, Restart
from controller.apiserver.resources.pod_group import GroupPhase, OnFailure
from controller.workloads.placement.deciding import restarting
from controller.workloads.placement.settings import PlacementSettings, RetrySettings
from controller.workloads.placement.template import TEMPLATE, index_of, is_of, pod_name, pod_of, template_hash
from controller.workloads.placement.values import CreatePod, DeletePod, Plan, SetGroup, SetPod
from controller.workloads.placement.view import View
from dataplane.clock import NS_PER_S

_ENDED: Final = (GroupPhase.FAILED, GroupPhase.FINISHED)
_MOST_REASONS: Final = 8


@dataclass(frozen=True, slots=True)
class _Members:
    """A group's pods: those of its template by index, and a foreign pod with a name that the group needs."""

    group: PodGroup
    pods: Mapping[int, Pod]
    stranger: Pod | None
    template: str

    @property
    def size(self) -> int:
        """Wanted number of pods."""
        return self.group.spec.size

    def wanted(self) -> list[Pod]:
        """Return the existing pods among the wanted ones, in order of index."""
        return [self.pods[index] for index in sorted(self.pods) if index < self.size]

    def is_old(self, pod: Pod) -> bool:
        """Return whether a pod was created from another template than the present one."""
        return pod.metadata.labels.get(TEMPLATE) != self.template


def decide(view: View, now_ns: int, settings: PlacementSettings, plan: Plan) -> None:
    """Plan the steps for all groups."""
    for name in sorted(view.groups):
        group = view.groups[name]
        if group.spec.template is None:
            _decide_plain(view, group, now_ns, plan)
        else:
            _decide_templated(view, _members(view, group), now_ns, settings, plan)


def _members(view: View, group: PodGroup) -> _Members:
    pods: dict[int, Pod] = {}
    for pod in view.in_group(group.metadata.name):
        index = index_of(pod)
        if is_of(pod, group) and index is not None:
            pods[index] = pod
    names = (pod_name(group.metadata.name, index) for index in range(group.spec.size) if index not in pods)
    stranger = next((view.pods[name] for name in names if name in view.pods), None)
    return _Members(group, pods, stranger, template_hash(group))


def _decide_plain(view: View, group: PodGroup, now_ns: int, plan: Plan) -> None:
    """Plan for a group whose pods users write: its end."""
    pods = view.in_group(group.metadata.name)
    if group.status.phase is GroupPhase.PENDING:
        _fail_if_late(view, group, now_ns, plan)
    elif group.status.phase is GroupPhase.FAILED:
        _fail_waiting(group, pods, plan)
    elif group.status.phase is GroupPhase.BOUND:
        _end(group, pods, {pod.metadata.name for pod in pods if pod.status.phase is Phase.FAILED}, plan)


def _decide_templated(view: View, members: _Members, now_ns: int, settings: PlacementSettings, plan: Plan) -> None:
    group, pods = members.group, members.wanted()
    if group.status.phase in _ENDED:
        if any(members.is_old(pod) for pod in pods):
            _begin_anew(group, plan)
        elif group.status.phase is GroupPhase.FAILED:
            _fail_waiting(group, pods, plan)
            if group.spec.on_failure is OnFailure.GROUP:
                restarting.end_rest(group, pods, plan)
        return
    _remove_surplus(members, plan)
    replaced = _replace_old(members, plan)
    _create(members, settings.job_service, plan)
    if group.spec.on_failure is OnFailure.GROUP:
        if replaced or restarting.decide(view, group, pods, now_ns, settings=settings.retries, plan=plan):
            return
        failed: set[str] = set()
    else:
        failed = _retry(view, members, now_ns, settings.retries, plan)
    if replaced:
        return
    if group.status.phase is GroupPhase.PENDING:
        _fail_if_late(view, group, now_ns, plan)
    elif not _place_whole_again(members, plan):
        _end(group, pods, failed, plan)


def _remove_surplus(members: _Members, plan: Plan) -> None:
    for index, pod in sorted(members.pods.items(), reverse=True):
        if index >= members.size and pod.metadata.deleting_ns is None:
            plan.do(DeletePod(pod, f"its group has only {members.size} pods now"))


def _replace_old(members: _Members, plan: Plan) -> bool:
    """Plan the end of pods of an older template; return whether there are any.

    Those that hold nothing are removed at once. Running ones are replaced one after the other, the next once all others
    run; workers of an all-reduce all at the same time, as they agree on their number and on the sum, and so are the
    pods of a group that starts again as a whole.
    """
    spec, starts_again = members.group.spec, members.group.status.starts_again
    old = [pod for pod in members.wanted() if members.is_old(pod)]
    waiting = [pod for pod in old if pod.metadata.deleting_ns is None]
    is_whole = spec.allreduce is not None or spec.on_failure is OnFailure.GROUP
    why = "its group starts again as a whole" if starts_again else "its group's template has changed"
    at_once = [pod for pod in waiting if is_whole or pod.status.node is None]
    plan.do(*(DeletePod(pod, why) for pod in at_once))
    rest = [pod for pod in waiting if pod not in at_once]
    others = [pod for pod in members.wanted() if not rest or pod is not rest[0]]
    if rest and not at_once and len(others) == members.size - 1 and all(_is_in_place(pod) for pod in others):
        plan.do(DeletePod(rest[0], why))
    return bool(old)


def _is_in_place(pod: Pod) -> bool:
    phase = pod.status.phase
    return pod.metadata.deleting_ns is None and phase in {Phase.RUNNING, Phase.SUCCEEDED}


def _create(members: _Members, job_service: str | None, plan: Plan) -> None:
    group, stranger = members.group, members.stranger
    missing = [index for index in range(members.size) if index not in members.pods]
    if not missing:
        return
    problem = _problem(members, job_service)
    if problem:
        _say(group, problem, plan)
        return
    # Pods of an earlier group of that name are removed first.
    taken = stranger.metadata.name if stranger is not None else None
    name = group.metadata.name
    plan.do(*(CreatePod(pod_of(group, index, job_service)) for index in missing if pod_name(name, index) != taken))


def _problem(members: _Members, job_service: str | None) -> str:
    """Return why no pods can be created, empty if they can."""
    group, stranger = members.group, members.stranger
    if stranger is not None and stranger.spec.group != group.metadata.name:
        return f"pod {stranger.metadata.name} exists already and is not one of this group: delete one of them"
    if group.spec.allreduce is not None and not (group.spec.allreduce.service or job_service):
        return "allreduce: neither the group nor the workload controller's settings name the job service"
    return ""


def _say(group: PodGroup, reason: str, plan: Plan) -> None:
    if group.status.reasons != (reason,):
        plan.do(SetGroup(replace(group, status=replace(group.status, reasons=(reason,))), reason))


def _retry(view: View, members: _Members, now_ns: int, settings: RetrySettings, plan: Plan) -> set[str]:
    """Plan that failed pods wait again, once their turn comes; return those that have failed for good."""
    final: set[str] = set()
    for pod in members.wanted():
        if pod.status.phase is not Phase.FAILED or pod.metadata.deleting_ns is not None or members.is_old(pod):
            continue
        name, retries = pod.metadata.name, pod.status.retries
        spec = pod.spec
        if spec.restart is Restart.NEVER or spec.restart_limit is not None or retries >= settings.most:
            final.add(name)
            continue
        wait_s = min(settings.first_wait_s * 2.0 ** min(retries, 60), settings.longest_wait_s)
        due_ns = view.since_ns.get(name, now_ns) + int(wait_s * NS_PER_S)
        if now_ns < due_ns:
            plan.again_at(due_ns)
            continue
        why = f"placed again after a failure, {retries + 1} of {settings.most} times"
        reasons = (why, *pod.status.reasons)[:_MOST_REASONS]
        status = replace(pod.status, phase=Phase.PENDING, retries=retries + 1, reasons=reasons, finished_ns=None)
        plan.do(SetPod(replace(pod, status=status), why))
    return final


def _fail_if_late(view: View, group: PodGroup, now_ns: int, plan: Plan) -> None:
    """Plan the failure of a group that was not placed within its time."""
    wait_s = group.spec.wait_s
    if wait_s is None:
        return
    due_ns = view.waiting_ns.get(group.metadata.name, now_ns) + int(wait_s * NS_PER_S)
    if now_ns < due_ns:
        plan.again_at(due_ns)
        return
    why = f"it was not placed within {wait_s:g} s"
    there = len(view.in_group(group.metadata.name))
    if there < group.spec.size:
        why += f": {there} of {group.spec.size} pods exist"
    reasons = (why, *group.status.reasons)[:_MOST_REASONS]
    status = replace(group.status, phase=GroupPhase.FAILED, reasons=reasons)
    plan.do(SetGroup(replace(group, status=status), why, explained=True))


def _fail_waiting(group: PodGroup, pods: Sequence[Pod], plan: Plan) -> None:
    """Plan the failure of a failed group's waiting pods."""
    why = f"its group {group.metadata.name} has failed"
    for pod in pods:
        if pod.status.phase is Phase.PENDING and pod.status.node is None and pod.metadata.deleting_ns is None:
            status = replace(pod.status, phase=Phase.FAILED, reasons=(why, *group.status.reasons)[:_MOST_REASONS])
            plan.do(SetPod(replace(pod, status=status), why))


def _begin_anew(group: PodGroup, plan: Plan) -> None:
    """Plan that a group that has ended starts over with another template."""
    why = "it starts over with another template"
    status = replace(group.status, phase=GroupPhase.PENDING, reasons=())
    plan.do(SetGroup(replace(group, status=status), why))


def _place_whole_again(members: _Members, plan: Plan) -> bool:
    """Plan that a group of which nothing is left is placed again as a whole; return whether it is."""
    pods, group = members.wanted(), members.group
    if len(pods) < members.size or not all(pod.status.phase is Phase.PENDING for pod in pods):
        return False
    why = "all of its pods wait: it is placed again as a whole"
    status = replace(group.status, phase=GroupPhase.PENDING, reasons=(why,))
    plan.do(SetGroup(replace(group, status=status), why))
    return True


def _end(group: PodGroup, pods: Sequence[Pod], failed: set[str], plan: Plan) -> None:
    """Plan the end of a group whose pods have all ended: finished, or failed; report `failed` pods even earlier."""
    lost = sorted(pod.metadata.name for pod in pods if pod.metadata.name in failed)
    reasons = tuple(f"pod {name} has failed" for name in lost)[:_MOST_REASONS]
    over = len(pods) >= group.spec.size and all(
        pod.status.phase is Phase.SUCCEEDED or pod.metadata.name in failed for pod in pods
    )
    phase = group.status.phase
    if over:
        phase = GroupPhase.FAILED if lost else GroupPhase.FINISHED
    if phase is group.status.phase and (not lost or group.status.reasons == reasons):
        return
    why = "all of its pods have succeeded" if phase is GroupPhase.FINISHED else ", ".join(reasons)
    plan.do(SetGroup(replace(group, status=replace(group.status, phase=phase, reasons=reasons)), why))
