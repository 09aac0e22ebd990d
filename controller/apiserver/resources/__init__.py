"""Resource kinds, one module each: strict schemas with a desired state (spec) and an observed one (status)."""

from __future__ import annotations

from typing import Final

from controller.apiserver.resources.base import Metadata, Resource
from controller.apiserver.resources.centre import CENTRE, Centre
from controller.apiserver.resources.decision import DECISION, Decision
from controller.apiserver.resources.kind import Kind, KindTable
from controller.apiserver.resources.node import NODE, Node
from controller.apiserver.resources.pod import POD, Pod
from controller.apiserver.resources.pod_group import POD_GROUP, PodGroup
from controller.apiserver.resources.probe_kernel import PROBE_KERNEL, ProbeKernel
from controller.apiserver.resources.probe_result import PROBE_RESULT, ProbeResult
from controller.apiserver.resources.probe_task import PROBE_TASK, ProbeTask
from controller.apiserver.resources.project import PROJECT, Project
from controller.apiserver.resources.scoring_policy import SCORING_POLICY, ScoringPolicy
from controller.apiserver.resources.task import Task
from controller.apiserver.resources.task_rules import TASK
from controller.apiserver.resources.unit_pool import UNIT_POOL, UnitPool

KINDS: Final = KindTable(
    (
        NODE,
        POD,
        POD_GROUP,
        CENTRE,
        TASK,
        PROBE_KERNEL,
        PROBE_TASK,
        PROBE_RESULT,
        SCORING_POLICY,
        UNIT_POOL,
        DECISION,
        PROJECT,
    )
)

__all__ = [
    "KINDS",
    "Centre",
    "Decision",
    "Kind",
    "Metadata",
    "Node",
    "Pod",
    "PodGroup",
    "ProbeKernel",
    "ProbeResult",
    "ProbeTask",
    "Project",
    "Resource",
    "ScoringPolicy",
    "Task",
    "UnitPool",
]
