"""Trust in each centre's figures, recomputed only after news from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from controller.apiserver.resources import ProbeResult, Task
from controller.probing.evaluation import Trust, trust_of
from controller.probing.evaluation.checks import UseWork, limits_of, work_by_use
from controller.probing.evaluation.trust import Evidence, TrustSettings
from controller.probing.library import KernelLibrary
from controller.scheduling.serving.tasks.view import TasksView

_STEP_NS: Final = 3_600_000_000_000
"""Interval at which trust is recomputed without news, so that old failures are forgiven."""


class Trusts:
    """Trust by centre. Silence is not considered here: a silent centre gets no task at all."""

    def __init__(self, view: TasksView, settings: TrustSettings) -> None:
        self._view, self._settings = view, settings
        self._found: dict[str, tuple[object, Trust]] = {}
        self._work: dict[str, tuple[object, dict[str, UseWork]]] = {}

    def of(self, centre: str, results: Sequence[ProbeResult], ended: Sequence[Task], wall_ns: int) -> Trust:
        """Return the trust in a centre, from all its results and all tasks that have ended there, newest last."""
        newest = (results[-1].metadata.revision if results else 0, ended[-1].metadata.revision if ended else 0)
        resource = self._view.centres[centre]
        key = (
            len(results),
            len(ended),
            newest,
            resource.status.units,
            # The checksum shifts each centre's step, so that they are not all rated anew at once.
            (wall_ns + crc32(centre.encode()) * 800) // _STEP_NS,
        )
        cached = self._found.get(centre)
        if cached is not None and cached[0] == key:
            return cached[1]
        evidence = Evidence(
            results,
            None,
            ended,
            {unit.name: limits_of(unit) for unit in resource.status.units},
            {probe: self._work_of(probe) for probe in {result.spec.probe for result in results}},
        )
        trust = trust_of(evidence, wall_ns, self._settings)
        self._found[centre] = (key, trust)
        return trust

    def _work_of(self, name: str) -> dict[str, UseWork]:
        """Return the work of each probe use, skipping deleted probes."""
        probe = self._view.probe(name)
        cached = self._work.get(name)
        if cached is not None and cached[0] is probe:
            return cached[1]
        kernels = {kernel.identifier: kernel for kernel in KernelLibrary(self._view.kernels()).kernels()}
        work = {} if probe is None else work_by_use(probe, kernels)
        self._work[name] = (probe, work)
        return work
