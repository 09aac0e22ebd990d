"""Pod counts of each node by group, and of pods that have not started: updated pod by pod."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from controller.apiserver.resources import Pod
from controller.apiserver.resources.pod import Phase
from controller.scheduling.framework.policies import Ids

_STARTING = (Phase.BOUND, Phase.STARTING)


class PodCounts:
    """Counts by node. `groups_on` and `starting_on` return them by row and reuse unchanged results."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._members: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._starting: Counter[str] = Counter()
        self._changed_groups: set[str] = set()
        self._changed_nodes: set[str] = set()
        self._groups_made: tuple[Mapping[str, int], dict[str, dict[int, int]]] | None = None
        self._starting_made: tuple[Mapping[str, int], Ids] | None = None

    def replace(self, before: Pod | None, now: Pod | None) -> None:
        """Replace a pod's previous state with its current one."""
        for pod, sign in ((before, -1), (now, 1)):
            if pod is None:
                continue
            name, group, node = pod.metadata.name, pod.spec.group, pod.status.node
            if group is not None:
                self._member(group, name, is_there=sign > 0)
            if node is None:
                continue
            if group is not None:
                self._groups[group][node] += sign
                self._changed_groups.add(group)
            if pod.status.phase in _STARTING:
                self._starting[node] += sign
                self._changed_nodes.add(node)

    def members(self, group: str) -> tuple[str, ...]:
        """Return the names of a group's pods, in order."""
        return tuple(sorted(self._members.get(group, ())))

    def groups_on(self, numbers: Mapping[str, int]) -> Mapping[str, Mapping[int, int]]:
        """Return the pod count of each node, by number, for each group; the same value until it changes.

        Groups without a pod on any of these nodes are left out.
        """
        cached, changed = self._groups_made, set(self._changed_groups)
        self._changed_groups.clear()
        if cached is None or cached[0] is not numbers:
            groups, changed = dict[str, dict[int, int]](), set(self._groups)
        elif not changed:
            return cached[1]
        else:
            groups = dict(cached[1])
        for group in changed:
            counts = {numbers[node]: count for node, count in self._groups[group].items() if count and node in numbers}
            if counts:
                groups[group] = counts
            else:
                groups.pop(group, None)
            if not any(self._groups[group].values()):
                del self._groups[group]
        self._groups_made = numbers, groups
        return groups

    def starting_on(self, numbers: Mapping[str, int]) -> Ids:
        """Return each node's count of pods that have not started, by node number; the same array until it changes."""
        cached, changed = self._starting_made, set(self._changed_nodes)
        self._changed_nodes.clear()
        if cached is None or cached[0] is not numbers:
            starting, changed = np.zeros(len(numbers), np.int64), set(self._starting)
        elif not changed:
            return cached[1]
        else:
            starting = cached[1].copy()
        for node in changed:
            if node in numbers:
                starting[numbers[node]] = self._starting[node]
            if not self._starting[node]:
                del self._starting[node]
        self._starting_made = numbers, starting
        return starting

    def _member(self, group: str, name: str, *, is_there: bool) -> None:
        if is_there:
            self._members[group][name] = None
            return
        self._members[group].pop(name, None)
        if not self._members[group]:
            del self._members[group]
