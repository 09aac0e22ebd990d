"""Image locality: images already on a node need not be pulled."""

from __future__ import annotations

import numpy as np

from controller.scheduling.framework.policies import MOST_POINTS, Ids, Longs, NoSettings
from controller.scheduling.pods import PendingPod, Snapshot


class ImageLocality:
    """Prefers nodes that have more bytes of the pod's images; an image that no node has counts for nothing."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def is_neutral(self, pod: PendingPod, snapshot: Snapshot) -> bool:
        """Return whether no node is known to have any of the images."""
        return not any(snapshot.images.get(image) for image in pod.images)

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the thousandths of the bytes that are present."""
        present, total = _bytes(pod, snapshot)
        if not total:
            return np.full(len(nodes), MOST_POINTS, np.int64)
        points: Longs = present[nodes] * MOST_POINTS // total
        return points

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return how much of the images is present."""
        return self.reasons(pod, snapshot, np.array([node]), np.zeros(1, np.int64))[0]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes."""
        if self.is_neutral(pod, snapshot):
            return ["no node is known to have its images"] * len(nodes)
        present, total = _bytes(pod, snapshot)
        return [
            f"{nbytes / 1e6:.1f} of {total / 1e6:.1f} MB of its images are present"
            for nbytes in present[nodes].tolist()
        ]


def _bytes(pod: PendingPod, snapshot: Snapshot) -> tuple[Longs, int]:
    """Return the bytes of the pod's images that each node has, and their total."""
    present, total = np.zeros(len(snapshot.columns.nodes), np.int64), 0
    for image in dict.fromkeys(pod.images):
        sizes = snapshot.images.get(image)
        if not sizes:
            continue
        # Nodes may report different sizes of one image, as each counts only the layers that it stores.
        total += max(*sizes.values(), 1)
        for node, nbytes in sizes.items():
            present[node] += max(nbytes, 1)
    return np.minimum(present, total), total
