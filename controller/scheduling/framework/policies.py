"""What a policy is: a filter, which refuses nodes, a score, which ranks the others, or a choice of devices on a node.

A policy is a class with `Settings`, a `dataplane.config.Strict` of its own, and is made with one. It may keep what can
be computed from its settings, and nothing of what it was asked but what gives the same answer sooner: the same pod and
snapshot give the same answer, whatever was asked before.

A filter may have `devices(pod, snapshot)`, too: which devices, in the rows of `NodeColumns`, the pod may get of nodes
that pass, None for all. Policies are shown a snapshot in which nothing is free of the others. One that goes by measured
loads has `lets_in(before, now)`: whether a device whose load was the one and is the other is given to pods that did not
get it, so that these are looked at again. Either kind may have a
method for many reasons at once, where that is cheaper: `reasons(pod, snapshot, nodes)` of a filter, and
`reasons(pod, snapshot, nodes, points)` of a score, whose points are given back to it. A score may have
`is_neutral(pod, snapshot)`: whether it gives all nodes `MOST_POINTS`, so that it need not be asked for them; and
`operator_devices(pod, snapshot, node)`: where the operators of a pod on a node are to run, which its programs are told.

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
    """Whether what it says of a node depends on what that node has and what of it is free, and on nothing else."""

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return for each node whether it may run the pod, None if all may."""
        ...

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return why a node is refused; it is asked only about nodes that are."""
        ...


class Score(Protocol):
    """Ranks nodes."""

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the points of each of `nodes`, 0 to `MOST_POINTS`: the more, the better."""
        ...

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return what a node's points are from."""
        ...


class DeviceChoice(Protocol):
    """Chooses devices."""

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return what a pod gets of a node on which it fits; raise HardwareError where it does not."""
        ...
