"""Nodes that do not report: marked, their pods released, held back if they flap; carefully if many are silent.

A node is silent once its lease and a margin have passed since its last report was seen. Its manager, or its guard, has
ended its pods by then. Each release names the report since which the node was silent, so that a node which has reported
meanwhile keeps its pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from controller.apiserver.registry.placements import Release
from controller.apiserver.resources import Node, Pod
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import MOST_PODS
from controller.workloads.placement.settings import FlappingSettings, PlacementSettings, SilenceSettings
from controller.workloads.placement.values import MarkSilent, Plan, ReleaseSilent, SetNode
from controller.workloads.placement.view import SeenNode, View
from dataplane.clock import NS_PER_S

HELD: Final = "millrace/held-back"
"""The label of a node that gets no pods because it flaps."""
_SILENT: Final = "silent: "


def decide(view: View, now_ns: int, settings: PlacementSettings, plan: Plan) -> tuple[list[str], str]:
    """Plan the steps for silent nodes; return these nodes, and the reason why their pods wait, if they do."""
    margin_ns = int(settings.silence.margin_s * NS_PER_S)
    silent: list[str] = []
    for name, seen in view.nodes.items():
        deadline_ns = seen.deadline_ns(margin_ns)
        if now_ns >= deadline_ns:
            silent.append(name)
        elif seen.node.status.ready or name in view.pods_of_node:
            plan.again_at(deadline_ns)
    silent.sort(key=lambda name: (view.nodes[name].deadline_ns(margin_ns), name))
    for name in silent:
        _mark(view.nodes[name], now_ns, plan)
    held = _empty(view, silent, now_ns, settings.silence, plan)
    _release_of_no_node(view, now_ns, margin_ns, plan)
    _hold_back(view, set(silent), now_ns, settings.flapping, plan)
    return silent, held


def _mark(seen: SeenNode, now_ns: int, plan: Plan) -> None:
    """Mark a silent node as not ready.

    A node that never reported is not ready anyway, and writing its status would count as a report.
    """
    status = seen.node.status
    if not seen.heartbeat_ns or (not status.ready and status.reason.startswith(_SILENT)):
        return
    before = f"; before: {status.reason}" if status.reason else ""
    why = f"{_SILENT}no report for {(now_ns - seen.seen_ns) / NS_PER_S:.0f} s{before}"[:1024]
    marked = replace(seen.node, status=replace(status, ready=False, reason=why))
    plan.do(MarkSilent(marked, why))


def _empty(view: View, silent: Sequence[str], now_ns: int, settings: SilenceSettings, plan: Plan) -> str:
    """Release the pods of marked silent nodes, as many nodes as allowed; return why others wait."""
    holding = [name for name in silent if name in view.pods_of_node and not view.nodes[name].node.status.ready]
    begun = [name for name in holding if view.emptied.get(name, (-1, 0))[0] == view.nodes[name].heartbeat_ns]
    waiting = [name for name in holding if name not in begun]
    allowed, next_ns, held = _allowance(view, silent, now_ns, settings)
    for name in (*begun, *waiting[:allowed]):
        plan.do(*_releases(view.nodes[name], view.on_node(name), now_ns))
    for name in waiting[allowed:]:
        # Pods under deletion are never held back.
        going = [pod for pod in view.on_node(name) if pod.metadata.deleting_ns is not None]
        plan.do(*_releases(view.nodes[name], going, now_ns, counts=False))
    if len(waiting) > allowed and next_ns is not None:
        plan.again_at(next_ns)
    return held if len(waiting) > allowed else ""


def _allowance(
    view: View, silent: Sequence[str], now_ns: int, settings: SilenceSettings
) -> tuple[int, int | None, str]:
    """Return how many more nodes may be emptied now, when the next may (None: when something changes), and why.

    Late nodes count, as leases do not all end at the same time when all nodes fall silent. Nodes that are silent and
    empty do not count: a node that has been away for days says nothing about the network.
    """
    away, total = _late(view, set(silent), now_ns)
    many = f"{away} of {total} nodes do not report"
    if away == total:
        return 0, None, f"{many}: no pod is placed again until one does"
    partitioned = away > settings.partition_share * total
    rate = settings.partition_nodes_per_s if partitioned else settings.nodes_per_s
    burst = 1 if partitioned else settings.burst
    # The first of the last `burst` nodes must be as long ago as the rate says.
    window_ns = int(burst / rate * NS_PER_S)
    recent = sorted(at for _, at in view.emptied.values() if at > now_ns - window_ns)
    next_ns = recent[-burst] + window_ns if len(recent) >= burst else now_ns + int(NS_PER_S / rate)
    why = f"{many}: the pods of {rate:g} nodes a second are placed again"
    return max(burst - len(recent), 0), next_ns, why


def _late(view: View, silent: set[str], now_ns: int) -> tuple[int, int]:
    """Return how many nodes have not reported for half of their lease, which is two reports, and the total."""
    late = total = 0
    for name, seen in view.nodes.items():
        if name in view.pods_of_node or (name not in silent and seen.heartbeat_ns):
            total += 1
            late += now_ns - seen.seen_ns >= seen.lease_ns // 2
    return late, total


def _releases(seen: SeenNode, pods: Sequence[Pod], now_ns: int, *, counts: bool = True) -> Iterator[ReleaseSilent]:
    name = seen.node.metadata.name
    why = f"node {name} is silent for {(now_ns - seen.seen_ns) / NS_PER_S:.0f} s"
    for start in range(0, len(pods), MOST_PODS):
        some = tuple(_release(pod, name, why, seen.heartbeat_ns) for pod in pods[start : start + MOST_PODS])
        yield ReleaseSilent(name, seen.heartbeat_ns, some, counts)


def _release(pod: Pod, node: str, why: str, heartbeat_ns: int) -> Release:
    phase = pod.status.then or Phase.PENDING
    location = pod.spec.location
    if phase is not Phase.PENDING:
        reasons: tuple[str, ...] = (why, *pod.status.reasons)[:8]
    elif location is not None and location.node == node:
        reasons = (f"{why}; the pod names this node, and waits for it",)
    else:
        reasons = (f"{why}: the pod is placed again",)
    return Release(
        pod=pod.metadata.name, epoch=pod.status.epoch, phase=phase, heartbeat_ns=heartbeat_ns, reasons=reasons
    )


def _release_of_no_node(view: View, now_ns: int, margin_ns: int, plan: Plan) -> None:
    """Release pods of a node whose resource is gone, once its lease must be over."""
    due: dict[str, list[Pod]] = {}
    for name, until_ns in view.pods_of_no_node.items():
        if now_ns < until_ns + margin_ns:
            plan.again_at(until_ns + margin_ns)
            continue
        pod = view.pods[name]
        assert pod.status.node is not None
        due.setdefault(pod.status.node, []).append(pod)
    for node, pods in sorted(due.items()):
        why = f"node {node} no longer exists"
        for start in range(0, len(pods), MOST_PODS):
            some = tuple(_release(pod, node, why, 0) for pod in pods[start : start + MOST_PODS])
            plan.do(ReleaseSilent(node, 0, some, counts=False))


def _hold_back(view: View, silent: set[str], now_ns: int, settings: FlappingSettings, plan: Plan) -> None:
    """Keep flapping nodes from taking pods, and let those that have stopped flapping take them again."""
    window_ns = int(settings.window_s * NS_PER_S)
    for name, seen in view.nodes.items():
        times = view.silences.get(name, ())
        is_held = HELD in seen.node.metadata.labels
        if not is_held and not times:
            continue
        recent = sum(at > now_ns - window_ns for at in times)
        if not is_held and recent >= settings.most and not seen.node.spec.unschedulable:
            why = f"it was silent {recent} times within {settings.window_s:g} s"
            plan.do(SetNode(_held_back(seen.node, why), f"takes no new pods: {why}"))
        elif is_held and name not in silent:
            steady_ns = max((*times, view.started_ns)) + window_ns
            if now_ns >= steady_ns:
                plan.do(SetNode(_readmitted(seen.node), f"takes pods again: not silent for {settings.window_s:g} s"))
            else:
                plan.again_at(steady_ns)


def _held_back(node: Node, why: str) -> Node:
    labels = node.metadata.labels | {HELD: "flapping"}
    spec = replace(node.spec, unschedulable=True, reason=why)
    return replace(node, metadata=replace(node.metadata, labels=labels), spec=spec)


def _readmitted(node: Node) -> Node:
    labels = {key: value for key, value in node.metadata.labels.items() if key != HELD}
    spec = replace(node.spec, unschedulable=False, reason="")
    return replace(node, metadata=replace(node.metadata, labels=labels), spec=spec)
