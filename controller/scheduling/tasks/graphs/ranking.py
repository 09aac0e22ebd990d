"""Upward ranks of the tasks of graphs, and when each graph came; pure.

The rank of a task is the expected time from its start to the end of its graph along the longest path, by mean run times
and transfers: Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
computing", 2002. With it, and each task where it ends first, a plan is that of heterogeneous earliest finish time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.apiserver.resources import Task
from controller.scheduling.tasks.graphs.walking import Standing

_UNKNOWN_S: Final = 1.0
"""Run time of each task of graphs whose run times are all unknown: then the longest path counts tasks."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Ranks in seconds and the submission of the graph, by task; tasks without a graph are missing."""

    rank_s: Mapping[str, float]
    since_ns: Mapping[str, int]


def edges_of(
    waiting: Mapping[str, Task], standings: Mapping[str, Standing], tasks: Mapping[str, Task]
) -> dict[str, dict[str, int]]:
    """Return the waiting followers of each predecessor that has not ended, with the bytes that each reads from it."""
    edges: dict[str, dict[str, int]] = {}
    for name, standing in standings.items():
        nbytes = dict.fromkeys(standing.awaited, 0)
        for data in waiting[name].spec.inputs:
            if data.task in nbytes:
                nbytes[data.task] += bytes_of(data.nbytes, data.output, tasks[data.task])
        for predecessor in standing.awaited:
            edges.setdefault(predecessor, {})[name] = nbytes[predecessor]
    return edges


def bytes_of(nbytes: int | None, output: str | None, source: Task) -> int:
    """Return the bytes of an input: as stated, or those of an output of its predecessor."""
    if nbytes is not None:
        return nbytes
    return next((each.nbytes for each in source.spec.outputs if each.name == output), 0)


def ranked(
    edges: Mapping[str, Mapping[str, int]],
    run_s: Mapping[str, float],
    s_per_byte: float,
    submitted_ns: Mapping[str, int],
) -> Ranked:
    """Return the ranks of all tasks of some graphs; `run_s` has NaN for unknown run times."""
    known = [seconds for seconds in run_s.values() if not np.isnan(seconds)]
    usual_s = sum(known) / len(known) if known else _UNKNOWN_S
    ranks: dict[str, float] = {}
    for name in _followers_first(edges):
        seconds = run_s.get(name, 0.0)
        after = (nbytes * s_per_byte + ranks.get(follower, 0.0) for follower, nbytes in edges.get(name, {}).items())
        ranks[name] = (usual_s if np.isnan(seconds) else seconds) + max(after, default=0.0)
    return Ranked(ranks, _since(edges, submitted_ns))


def _followers_first(edges: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return tasks, each after all its followers; those of a cycle come last."""
    before: dict[str, list[str]] = {}
    open_: dict[str, int] = {}
    for name, followers in edges.items():
        open_[name] = len(followers)
        for follower in followers:
            open_.setdefault(follower, len(edges.get(follower, {})))
            before.setdefault(follower, []).append(name)
    ordered = [name for name, count in open_.items() if not count]
    for name in ordered:
        for predecessor in before.get(name, ()):
            open_[predecessor] -= 1
            if not open_[predecessor]:
                ordered.append(predecessor)
    return ordered + [name for name, count in open_.items() if count]


def _since(edges: Mapping[str, Mapping[str, int]], submitted_ns: Mapping[str, int]) -> dict[str, int]:
    """Return the earliest submission in the connected part of each task."""
    parts: dict[str, str] = {}

    def part_of(name: str) -> str:
        root = name
        while (above := parts.setdefault(root, root)) != root:
            root = above
        while parts[name] != root:
            parts[name], name = root, parts[name]
        return root

    for name, followers in edges.items():
        for follower in followers:
            parts[part_of(follower)] = part_of(name)
    first: dict[str, int] = {}
    for name in parts:
        root = part_of(name)
        first[root] = min(first.get(root, submitted_ns[name]), submitted_ns[name])
    return {name: first[part_of(name)] for name in parts}


def names_in(edges: Mapping[str, Mapping[str, int]]) -> Iterable[str]:
    """Return all tasks of some graphs, each once."""
    return dict.fromkeys(name for source, followers in edges.items() for name in (source, *followers))
