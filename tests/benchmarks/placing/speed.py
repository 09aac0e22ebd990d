"""Decisions per second: pods of openb on all its nodes, with each decision applied.

A decision is that of `decide` plus the choice of devices, under the default profile and under packing alone; with
reasons it is everything that `millrace scheduler serve` keeps: 16 candidates and 16 refused nodes, each score and
refusal in words, as a Decision. Both alternate in one run, on clusters that fill up alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from controller.scheduling.framework.deciding import examine
from controller.scheduling.pods import PendingPod, PodProfile, PodProfileSettings, Snapshot, decide
from controller.scheduling.pods.explaining import explained
from controller.scheduling.serving.decisions import decision_of
from tests.benchmarks.placing.openb import Trace, profile_of

NAMES: Final = ("placements_per_s", "placements_per_s_no_reasons", "placements_per_s_packing_only")
_ROUND: Final = 250
_ROUNDS: Final = 12
_WARM: Final = 2000


def figures(quick: bool, data: Path) -> Mapping[str, float]:
    """Return decisions per second: the median of rounds, each of which fills the cluster further."""
    trace = Trace.of(data)
    if trace is None:
        print(f"speed: skipped: the trace openb is not in {data}")
        return {}
    default, packing = PodProfile.of(PodProfileSettings()), profile_of("stranding", "stranding")
    ways: dict[str, tuple[PodProfile, Callable[[PodProfile, PendingPod, Snapshot], None]]] = {
        "placements_per_s": (default, _with_reasons),
        "placements_per_s_no_reasons": (default, _without),
        "placements_per_s_packing_only": (packing, _without),
    }
    pods = trace.arrivals(sum(len(node.devices) for node in trace.nodes) * 1000, 42)
    snapshots = {name: trace.snapshot(trace.nodes) for name in ways}
    for name, (profile, _) in ways.items():
        for pod in pods[:_WARM]:
            _without(profile, pod, snapshots[name])
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(2 if quick else _ROUNDS):
        some = pods[_WARM + number * _ROUND : _WARM + (number + 1) * _ROUND]
        for name, (profile, place_pod) in ways.items():
            begun = time.perf_counter()
            for pod in some:
                place_pod(profile, pod, snapshots[name])
            seconds[name].append(time.perf_counter() - begun)
    return {name: _ROUND / sorted(some)[len(some) // 2] for name, some in seconds.items()}


def _without(profile: PodProfile, pod: PendingPod, snapshot: Snapshot) -> None:
    choice = decide(profile, pod, snapshot)
    if choice.is_placed:
        snapshot.free.add(snapshot.columns, choice.candidate, profile.shares(pod, snapshot, choice.candidate), -1)


def _with_reasons(profile: PodProfile, pod: PendingPod, snapshot: Snapshot) -> None:
    choice, examined = examine(profile, pod, snapshot)
    why = explained(profile, choice, examined)
    shares = (profile.shares(pod, snapshot, choice.candidate),) if choice.is_placed else ()
    decision_of(
        [why],
        shares,
        subject_kind="pod",
        subjects=[pod.name],
        scheduler="benchmark",
        reason=why.summary,
        begun_ns=0,
        decided_ns=0,
    )
    for some in shares:
        snapshot.free.add(snapshot.columns, choice.candidate, some, -1)
