"""Choice of a pod's devices on a node."""

from __future__ import annotations

from controller.cluster.hardware import Shares
from controller.scheduling.framework.policies import NoSettings
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod


class LeastLeft:
    """Chooses the devices with the least left, so that whole ones stay whole."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the choice of `hardware.choose`."""
        return snapshot.shares(node, pod.request)
