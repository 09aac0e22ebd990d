"""Policies: filters, which refuse nodes, scores, which rank the others, and choices of devices on a node.

A policy is a class with its own `Settings`, a `dataplane.config.Strict`, and is constructed with one. It may keep what
can be computed from its settings, and cache answers: the same pod and snapshot always give the same answer, regardless
of earlier calls.

A filter may also have `devices(pod, snapshot)`: the devices, in the rows of `NodeColumns`, that the pod may get on
nodes that pass, None for all. Policies see a snapshot in which nothing is free on the other devices. A filter that uses
measured loads has `lets_in(before, now)`: whether the change of a device's load lets in pods that it kept off before,
so that these are decided again. Both filters and scores may return many reasons at once, if that is cheaper:
`reasons(pod, snapshot, nodes)` of a filter, and `reasons(pod, snapshot, nodes, points)` of a score, which gets its
points back. A score may have `is_neutral(pod, snapshot)`: whether it gives all nodes `MOST_POINTS`, so that it need not
be called; and `operator_devices(pod, snapshot, node)`: the devices for the operators of a pod on a node, which its
programs are told.

```python
class Quiet:
    \"\"\"Refuses nodes of which more than so many thousandths of the cores are held.\"\"\"

    class Settings(Strict, frozen=True):
        most_milli: int = 500

    is_local = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def passes(self, pod, snapshot):
        return snapshot.free.cpu_milli * 1000 >= snapshot.columns.cpu_milli * (1000 - self.settings.most_milli)

    def reason(self, pod, snapshot, node):
        return f"more than {self.settings.most_milli} thousandths of its cores are held"
```
"""

from __future__ import annotations

from typing import Protocol

from controller.cluster.hardware import Shares
from controller.scheduling.framework.columns import Flags, Ids, Longs
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import PendingPod


class Filter(Protocol):
    """Refuses nodes."""

    is_local: bool
    """True if its answer for a node depends only on that node's hardware and free resources."""

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return whether each node may run the pod, None if all may."""
        ...

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return why a node is refused; called only for refused nodes."""
        ...


class Score(Protocol):
    """Ranks nodes."""

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the points of each of `nodes`, 0 to `MOST_POINTS`: the more, the better."""
        ...

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the basis of a node's points."""
        ...


class DeviceChoice(Protocol):
    """Chooses devices."""

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the shares of a pod on a node where it fits; raise HardwareError if it does not."""
        ...
