"""Placement of pods on nodes: filters refuse nodes, scores rank the rest, as pure functions over a snapshot.

Decisions can be explained: each refusal and each score has its reason.
"""

from __future__ import annotations

from controller.scheduling.framework.deciding import decide
from controller.scheduling.pods.explaining import explain
from controller.scheduling.pods.groups import place_group
from controller.scheduling.pods.profiles import PodProfile, PodProfileSettings
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import Peer, PendingPod, PodChoice

__all__ = [
    "Peer",
    "PendingPod",
    "PodChoice",
    "PodProfile",
    "PodProfileSettings",
    "Snapshot",
    "decide",
    "explain",
    "place_group",
]
