"""Leftovers: pods of groups that are gone, shares of pods that are gone; and pods that do not stop."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from controller.apiserver.resources import Pod
from controller.apiserver.resources.pod import Phase
from controller.workloads.placement.settings import PlacementSettings
from controller.workloads.placement.template import GROUP_UID, is_of
from controller.workloads.placement.values import DeletePod, Plan, ReleaseShare
from controller.workloads.placement.view import View
from dataplane.clock import NS_PER_S


def decide(view: View, now_ns: int, plan: Plan) -> None:
    """Plan the removal of orphans and of shares without a pod."""
    for name in sorted(view.pods_of_group):
        group = view.groups.get(name)
        for pod in view.in_group(name):
            uid = pod.metadata.labels.get(GROUP_UID)
            if uid is None or pod.metadata.deleting_ns is not None or (group is not None and is_of(pod, group)):
                continue
            plan.do(DeletePod(pod, f"its group {name} is gone", orphan_of=(name, uid)))
    for name, seen in view.nodes.items():
        here = view.pods_of_node.get(name, ())
        unknown = [share.pod for share in seen.node.shares if share.pod not in here]
        if not unknown:
            continue
        if seen.node.metadata.revision > view.revisions[Pod]:
            # A binding writes both, and the watch of pods lags behind that of nodes.
            plan.again_at(now_ns + NS_PER_S)
            continue
        plan.do(*(ReleaseShare(name, pod) for pod in unknown))


def stuck(view: View, silent: Collection[str], now_ns: int, settings: PlacementSettings, plan: Plan) -> Iterator[str]:
    """Yield a line for each pod that its reporting node should have stopped by now."""
    away = set(silent)
    for name, since_ns in sorted(view.since_ns.items()):
        pod = view.pods[name]
        node = pod.status.node
        if node is None or node in away or node not in view.nodes:
            continue
        due_ns = since_ns + int((settings.stuck_s + pod.spec.stop_grace_s) * NS_PER_S)
        if now_ns < due_ns:
            plan.again_at(due_ns)
            continue
        what = "evicted" if pod.status.phase is Phase.STOPPING else "deleted"
        seconds = (now_ns - since_ns) // NS_PER_S
        yield f"pod {name} is {what}, but node {node}, which reports, has not stopped it for {seconds} s"
