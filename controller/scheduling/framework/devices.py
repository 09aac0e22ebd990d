"""Which devices of a node a pod gets there."""

from __future__ import annotations

from controller.cluster.hardware import Shares
from controller.scheduling.framework.filters import NoSettings
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import PendingPod


class LeastLeft:
    """Gives the devices of which the least is left, so that whole ones stay whole."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return what `hardware.choose` gives."""
        return snapshot.shares(node, pod.request)
