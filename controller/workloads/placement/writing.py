"""Carries out decisions: each write at the API server with the expected state of its target."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Decision, Node, Pod, PodGroup
from controller.common.errors import ApiError, NotFoundError, StaleError
from controller.workloads.placement.values import (
    Action,
    CreatePod,
    DeletePod,
    MarkSilent,
    ReleaseShare,
    ReleaseSilent,
    SetGroup,
    SetNode,
    SetPod,
)
from controller.workloads.placement.view import Known


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a write: revision and kinds of the changed resources, and a line for the log."""

    revision: int
    kinds: tuple[Known, ...]
    line: str


async def write(client: ApiClient, action: Action) -> Written:
    """Carry an action out; raise StaleError if something has changed since the decision, else ApiError."""
    match action:
        case CreatePod(pod):
            made = await client.of(Pod).create(pod)
            return Written(made.metadata.revision, (Pod,), f"pod {pod.metadata.name}: created")
        case DeletePod():
            return await _delete(client, action)
        case SetPod(pod, why):
            changed = await client.of(Pod).replace_status(pod)
            return Written(changed.metadata.revision, (Pod,), f"pod {pod.metadata.name}: {why}")
        case SetGroup():
            return await _set_group(client, action)
        case MarkSilent(node, why):
            marked = await client.of(Node).replace_status(node)
            return Written(marked.metadata.revision, (Node,), f"node {node.metadata.name}: {why}")
        case SetNode(node, why):
            set_node = await client.of(Node).replace(node)
            return Written(set_node.metadata.revision, (Node,), f"node {node.metadata.name}: {why}")
        case ReleaseSilent(node_name, _, releases, _):
            answer = await client.release(ReleaseRequest(releases=releases))
            reason = releases[0].reasons[0]
            return Written(answer.revision, (Pod,), f"node {node_name}: {len(releases)} pods released: {reason}")
        case ReleaseShare(node_name, pod_name):
            answer = await client.release(ReleaseRequest(releases=(Release(pod=pod_name, node=node_name),)))
            return Written(
                answer.revision, (Node,), f"node {node_name}: released its share of pod {pod_name}, which is gone"
            )


async def _delete(client: ApiClient, action: DeletePod) -> Written:
    metadata = action.pod.metadata
    if action.orphan_of is not None and await _is_there(client, *action.orphan_of):
        raise StaleError(f"PodGroup {action.orphan_of[0]} exists")
    gone = await client.of(Pod).delete(metadata.name, expected=metadata.revision)
    return Written(gone.metadata.revision, (Pod,), f"pod {metadata.name}: deleted: {action.why}")


async def _is_there(client: ApiClient, group: str, uid: str) -> bool:
    """Return whether a group exists: the watch may not have reported it yet."""
    try:
        return (await client.of(PodGroup).get(group)).metadata.uid == uid
    except NotFoundError:
        return False


async def _set_group(client: ApiClient, action: SetGroup) -> Written:
    group = action.group
    if action.explained and (last := await _last_refusal(client, group.metadata.name)):
        status = replace(group.status, reasons=(*group.status.reasons, last))
        group = replace(group, status=status)
    changed = await client.of(PodGroup).replace_status(group)
    line = f"group {group.metadata.name}: {group.status.phase.value}: {action.why}"
    return Written(changed.metadata.revision, (PodGroup,), line)


async def _last_refusal(client: ApiClient, group: str) -> str:
    """Return the scheduler's last refusal of a group; empty without one, or if it cannot be queried."""
    try:
        refusals = (await client.of(Decision).list(fields=f"group={group},outcome=refused")).items
    except ApiError:
        return ""
    newest = max(refusals, key=lambda decision: decision.metadata.revision, default=None)
    return "" if newest is None else newest.spec.reason
