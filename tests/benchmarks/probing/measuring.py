"""Runs of probes and of real tasks at all centres, one after the other, and what follows from them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from controller.apiserver.resources import ProbeTask as ProbeTaskResource
from controller.apiserver.resources.base import Metadata
from controller.apiserver.resources.probe_result import ProbeRun
from controller.apiserver.resources.task import Program, ProgramKind
from controller.cluster.estimates import Estimate
from controller.probing import expert, files
from controller.probing.library import KernelLibrary
from controller.probing.prediction import Reference, predicted
from controller.probing.values import ProbeTask
from dataplane.errors import MillraceError
from tests.benchmarks.probing.places import CENTRES, Limits, Places, Ran
from tests.benchmarks.probing.probes import Built, Target
from tests.benchmarks.probing.ranking import Score, is_near, score

FIXED: Final = """
millrace: 1
name: fixed-benchmark
kernels:
  - {kernel: dgemm, sizes: {m: 1000, n: 1000, k: 1000}}
  - {kernel: stream-triad, sizes: {n: 4000000}}
"""
_MOST_AGAIN: Final = 2
"""Repetitions of real runs that are nearer to each other than they scatter."""


@dataclass(slots=True)
class Measured:
    """A target at each centre, by the centre's name: its probe's run, and how long it really took, each time."""

    target: Target
    built: Built
    probe: dict[str, Ran] = field(default_factory=dict)
    real: dict[str, list[float]] = field(default_factory=dict)

    def estimate(self, centre: str) -> Estimate:
        """Return how long it was predicted to take."""
        return predicted(self.built.probe, self.probe[centre].runs)

    def error(self, centre: str) -> float:
        """Return by which part of the real time the prediction was wrong."""
        return abs(self.estimate(centre).times[1] / fmean(self.real[centre]) - 1)

    def plain_error(self, centre: str) -> float:
        """Return the error of a prediction from the probe's run alone, without the measurements of its build."""
        estimate = predicted(replace(self.built.probe, reference=None), self.probe[centre].runs)
        return abs(estimate.times[1] / fmean(self.real[centre]) - 1) if estimate.is_known else math.nan

    def error_from(self, centre: str, reference: str) -> float:
        """Return the same of a prediction that knows how long the task took at another centre."""
        anchor = Reference(fmean(self.real[reference]), self.probe[reference].runs, reference)
        estimate = predicted(self.built.probe, self.probe[centre].runs, reference=anchor)
        return abs(estimate.times[1] / fmean(self.real[centre]) - 1)

    def score(self) -> Score:
        """Return how well the predictions rank the centres."""
        return score(self.real, {centre: self.estimate(centre).times[1] for centre in self.real})


@dataclass(frozen=True, slots=True)
class Outcome:
    """All targets, and the fixed benchmark's figure by centre: the less the quicker."""

    measured: Sequence[Measured]
    fixed: Mapping[str, float]
    left_out: tuple[str, ...] = ()
    """Targets that could not be measured, and why."""

    @property
    def mean_error(self) -> float:
        """The mean over all targets and centres."""
        return fmean(measured.error(centre) for measured in self.measured for centre in measured.real)

    @property
    def mean_plain_error(self) -> float:
        """The mean over all targets and centres, from probes' runs at the centres alone."""
        return fmean(measured.plain_error(centre) for measured in self.measured for centre in measured.real)

    @property
    def mean_error_from_first(self) -> float:
        """The mean at all centres but the first, of predictions that know the task's time at the first."""
        first, *others = (limits.name for limits in CENTRES)
        return fmean(measured.error_from(centre, first) for measured in self.measured for centre in others)

    @property
    def overhead(self) -> float:
        """Unit-seconds of all probes over those of all tasks, both from the process's start to its end."""
        probes = math.fsum(ran.run_time_s for measured in self.measured for ran in measured.probe.values())
        return probes / math.fsum(times[0] for measured in self.measured for times in measured.real.values())

    @property
    def pairs(self) -> Score:
        """Ranking score of the predictions."""
        return sum((measured.score() for measured in self.measured), Score(0, 0, 0))

    @property
    def fixed_pairs(self) -> Score:
        """Ranking score of the fixed benchmark."""
        return sum((score(measured.real, self.fixed) for measured in self.measured), Score(0, 0, 0))


class Measuring:
    """Measures at one centre after the other."""

    def __init__(self, places: Places, built: Mapping[Target, Built], steps: Mapping[Target, int]) -> None:
        self._places, self._steps = places, steps
        self.measured = [Measured(target, built_probe) for target, built_probe in built.items()]
        self.fixed: dict[str, float] = {}
        self.left_out: list[str] = []
        self._fixed = expert.loads(FIXED, KernelLibrary())
        self._number = 0

    def run(self) -> Outcome:
        """Run all, and repeat results too close to rank."""
        for probe in (*(measured.built.probe for measured in self.measured), self._fixed):
            spec = files.to_spec(probe)
            self._places.client.of(ProbeTaskResource).create(
                ProbeTaskResource(metadata=Metadata(name=probe.name), spec=spec)
            )
        for limits in CENTRES:
            self._at(limits)
        for _ in range(_MOST_AGAIN):
            self._again()
        if not self.measured:
            raise MillraceError(f"nothing was measured: {'; '.join(self.left_out)}")
        return Outcome(self.measured, self.fixed, tuple(self.left_out))

    def _at(self, limits: Limits) -> None:
        with self._places.centre(limits, self._kernels()):
            _say(f"{limits.name}: {limits.line}")
            self.fixed[limits.name] = _figure(self._probe(limits, self._fixed).runs[0])
            for measured in tuple(self.measured):
                with self._leaving_out(measured, limits):
                    # One after the other, as a scheduler has it with a task of a type that it has not seen: how fast
                    # a shared machine is changes within minutes, by a fifth on the one that this was written on.
                    measured.probe[limits.name] = self._probe(limits, measured.built.probe)
                    self._real(limits, measured)

    @contextmanager
    def _leaving_out(self, measured: Measured, limits: Limits) -> Iterator[None]:
        """Leave a target out, everywhere, that cannot be measured, and say so; the others are measured nonetheless."""
        try:
            yield
        except MillraceError as error:
            self.measured.remove(measured)
            self.left_out.append(f"{measured.target.title} at {limits.name}: {error}")
            _say(f"  left out: {self.left_out[-1]}")

    def _again(self) -> None:
        """Run again where the real runs of two centres are too near to say which is the quicker one."""
        for limits in CENTRES:
            near = [measured for measured in self.measured if self._is_near(measured, limits.name)]
            if near:
                with self._places.centre(limits, {"dgemm"}):
                    for measured in near:
                        self._real(limits, measured)

    @staticmethod
    def _is_near(measured: Measured, centre: str) -> bool:
        return any(is_near(measured.real[centre], times) for other, times in measured.real.items() if other != centre)

    def _probe(self, limits: Limits, probe: ProbeTask) -> Ran:
        ran = self._places.run(limits, self._name(probe.name), Program(kind=ProgramKind.PROBE, entry=probe.name))
        _say(f"  probe {probe.name}: {ran.run_time_s:.2f} s")
        return ran

    def _real(self, limits: Limits, measured: Measured) -> None:
        arguments = (str(self._steps[measured.target]),)
        program = Program(kind=ProgramKind.PYTHON, entry=measured.target.entry, arguments=arguments)
        took_s = self._places.run(limits, self._name(measured.target.name.replace("_", "-")), program).run_time_s
        measured.real.setdefault(limits.name, []).append(took_s)
        _say(f"  {measured.target.title}: {took_s:.2f} s, predicted {measured.estimate(limits.name)}")

    def _kernels(self) -> set[str]:
        return {use.kernel for measured in self.measured for use in measured.built.probe.uses} | set(
            self._fixed.kernels
        )

    def _name(self, what: str) -> str:
        self._number += 1
        return f"{what}-{self._number}"


def _figure(run: ProbeRun) -> float:
    """Return the fixed benchmark's figure: the geometric mean of the seconds of its kernels' executions."""
    steady_s = [run.steady_s.get(name, fmean(times)) for name, times in run.kernels_s.items()]
    return math.exp(fmean(map(math.log, steady_s)))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
