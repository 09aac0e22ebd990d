"""Which node a pod runs on: filters refuse nodes, scores rank the rest, all as pure functions over a snapshot.

What is decided can be explained: each refusal and each score has its reason.
"""

from __future__ import annotations

from controller.schedulers.framework.deciding import Choice, decide
from controller.schedulers.framework.explaining import Explanation, explain
from controller.schedulers.framework.groups import place_group
from controller.schedulers.framework.policies import Filter, Score
from controller.schedulers.framework.profiles import Profile, ProfileSettings
from controller.schedulers.framework.snapshot import Snapshot
from controller.schedulers.framework.values import Peer, PendingPod

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
