"""Placement of pods on nodes: filters refuse nodes, scores rank the rest, all as pure functions over a snapshot.

Decisions can be explained: each refusal and each score has its reason.
"""

from __future__ import annotations

from controller.scheduling.framework.deciding import Choice, decide
from controller.scheduling.framework.explaining import Explanation, explain
from controller.scheduling.framework.groups import place_group
from controller.scheduling.framework.policies import Filter, Score
from controller.scheduling.framework.profiles import Profile, ProfileSettings
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import Peer, PendingPod

__all__ = [
    "Choice",
    "Explanation",
    "Filter",
    "Peer",
    "PendingPod",
    "Profile",
    "ProfileSettings",
    "Score",
    "Snapshot",
    "decide",
    "explain",
    "place_group",
]
