"""Devices of operators on machines with given accelerators, for policies that ask repeatedly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import msgspec

from controller.acceleration.calibration import DEFAULT, Calibration, Side, load
from controller.acceleration.errors import AccelerationError
from controller.acceleration.model import Choice, Works, times
from controller.acceleration.network.hardware import Hardware, load_hardware
from controller.acceleration.network.switches import Sums, SwitchTree, switch_choice
from controller.acceleration.plans import (
    SUMS,
    Explained,
    ExplainedOperator,
    Plan,
    explain,
    plan_of,
    reading_of_statement,
)
from controller.acceleration.values import SWITCH, Accelerator, Machines, Network, TransferModel, Work
from controller.apiserver.resources.operator_devices import MOST_LETTERS, MOST_OPERATORS, OperatorDevice, text_of
from controller.apiserver.resources.operator_graphs import graph_of_operators
from controller.apiserver.resources.task import OperatorCount
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator, OperatorError
from dataplane.topology.values import DeviceKind

_ALONE: Final = Machines(Network(math.inf), 1)


class MeasuredTimes:
    """CPU times of a task's operators, measured by a trace at submission; else those of a calibration.

    DuckDB's operators have times by the built-in calibration, too. `corrections` are factors of calibrated times, by
    kind.
    """

    def __init__(
        self,
        counts: Sequence[OperatorCount],
        otherwise: Calibration | None = None,
        corrections: Mapping[str, float] | None = None,
    ) -> None:
        self.graph = graph_of_operators("task", counts)
        self._otherwise, self._corrections = otherwise, dict(corrections or {})
        works = plan_of(self.graph, 1, _OneSecond()).works
        self._growth = {work.name: work.growth for work in works}
        self._t = _measured(works, {count.name: count.seconds for count in counts})

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return t, CPU seconds for 100 MB of an operator's input; unknown with the reason."""
        if (seconds := self._t.get(operator.name)) is not None:
            return Estimate.exactly(seconds, Basis.HISTORY, "as measured at submission")
        if (calibration := self._calibration_of(operator)) is not None:
            t = calibration.t_of(operator, Side.BOTH, self._growth[operator.name])
            return _scaled(t, self._corrections.get(operator.kind, 1.0))
        return Estimate.unknown(f"{operator.name}: {operator.kind} was never measured")

    def _calibration_of(self, operator: Operator) -> Calibration | None:
        return DEFAULT if self._otherwise is None and operator.library == _DUCKDB else self._otherwise


def _scaled(t: Estimate, factor: float) -> Estimate:
    """Return an estimate with all its seconds multiplied."""
    if t.seconds is None or factor == 1:
        return t
    low, high = (None if bound is None else bound * factor for bound in (t.low, t.high))
    return replace(t, seconds=t.seconds * factor, low=low, high=high)


def _measured(works: tuple[Work, ...], seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Return t for which the operator's class reproduces the measured seconds; `works` take a second on one machine."""
    unit_s = times(Works.of(works), _ALONE).compute_s.tolist()
    timings = ((work.name, seconds[work.name], unit) for work, unit in zip(works, unit_s, strict=True))
    return {name: measured / unit for name, measured, unit in timings if measured is not None and unit > 0}


class _OneSecond:
    """Each operator takes a second for 100 MB."""

    def t_of(self, operator: Operator, /) -> Estimate:  # noqa: ARG002 - the same for all
        return Estimate.exactly(1.0, Basis.MODELLED)


_DUCKDB: Final = "duckdb"
_KEPT: Final = 4096
"""Number of cached answers, over kinds of tasks, accelerators and networks."""
MOST_FLOWS: Final = 512
"""Maximum flows between operators: this many are placed within a tenth of a second, thousands are not."""
_LONGEST_S: Final = 1e9
_SHOWN: Final = 8
"""Operators named in a reason; the others are counted."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Times of operators, each on its device; None, with the problem, if unknown."""

    explained: Explained | None
    problem: str = ""

    @property
    def seconds(self) -> float:
        """Total seconds according to the model; 0 if unknown."""
        return 0.0 if self.explained is None else self.explained.placed_s

    @property
    def labels(self) -> frozenset[str]:
        """Accelerators, and the CPU, used by some operator."""
        return frozenset(operator.device for operator in self.explained.operators) if self.explained else frozenset()

    @property
    def reason(self) -> str:
        """The device of each operator, and the time relative to the CPU alone; in one line."""
        if self.explained is None:
            return self.problem
        explained = self.explained
        named = [f"{operator.decision.work.name} on the {operator.device}" for operator in explained.operators]
        unknown = sum(not operator.decision.times for operator in explained.operators)
        tied = [
            f"{operator.decision.work.name} on the {operator.tied}" for operator in explained.operators if operator.tied
        ]
        return (
            f"{_listed(named)}: {explained.placed_s:.4g} s by the model,"
            f" {explained.cpu_s:.4g} s on CPUs alone"
            f"{f'; {unknown} of unknown time stay on the cpu' if unknown else ''}"
            f"{f'; without the tie band of {explained.tie_band:g}: {_listed(tied)}' if tied else ''}"
        )

    def devices(self, kinds: Mapping[str, DeviceKind]) -> tuple[OperatorDevice, ...]:
        """Return the devices for a program, by accelerators' kinds; nothing if names are too long to pass on."""
        assigned = tuple(
            OperatorDevice(
                operator=operator.decision.work.name,
                device=kinds.get(operator.device.removesuffix(f"+{SWITCH}"), DeviceKind.CPU),
                seconds=_expected_s(operator),
                by_switch=operator.device == SWITCH or operator.device.endswith(f"+{SWITCH}"),
            )
            for operator in (self.explained.operators if self.explained else ())
        )
        return assigned if len(text_of(assigned)) <= MOST_LETTERS else ()


class Chooser:
    """Chooses devices for operators; accepts any input from submitters and always returns an answer.

    `hardware` is a file, '' for the accelerator of the calibration; the calibration is a file, too, '' for none: then
    operators without measured times are unknown, and the accelerator is that of the built-in calibration.
    """

    def __init__(self, hardware: str, calibration: str) -> None:
        self._calibration = load(Path(calibration)) if calibration else None
        if hardware:
            self.hardware = load_hardware(Path(hardware))
        else:
            source = self._calibration or DEFAULT
            accelerators = (source.accelerator_of(kind) for kind in DeviceKind if kind is not DeviceKind.CPU)
            # Compression only pays off on slow networks; a hardware file may enable it.
            there = tuple(
                replace(accelerator, compression=None) for accelerator in accelerators if accelerator is not None
            )
            # From another machine: a node's own values of bus and memory are more accurate.
            self.hardware = Hardware(accelerators=there, given=(frozenset(),) * len(there))
        self.kinds = {accelerator.label: accelerator.kind for accelerator in self.hardware.accelerators}
        self._placed = lru_cache(_KEPT)(self._place)

    def place(  # noqa: PLR0917 - the last one is empty at first
        self,
        operators: tuple[OperatorCount, ...],
        key: bytes,
        accelerators: tuple[Accelerator, ...],
        network: Network,
        machines: int,
        corrections: tuple[tuple[str, float], ...] = (),
        switch: SwitchTree | None = None,
    ) -> Placed:
        """Return the placement of operators on so many machines; `key` is their form from `key_of`.

        `corrections` are factors of calibrated times by kind; `switch` is where sums could be added up.
        """
        if not operators:
            return Placed(None, "its operators are unknown")
        if len(operators) > MOST_OPERATORS:
            return Placed(None, f"{len(operators)} operators, at most {MOST_OPERATORS} can be placed")
        if (flows := sum(len(operator.feeds) for operator in operators)) > MOST_FLOWS:
            return Placed(None, f"{flows} flows between operators, at most {MOST_FLOWS} can be placed")
        return self._placed(key, accelerators, network, max(machines, 1), corrections, switch)

    def _place(  # noqa: PLR0917 - what answers depend on
        self,
        operators: bytes,
        accelerators: tuple[Accelerator, ...],
        network: Network,
        count: int,
        corrections: tuple[tuple[str, float], ...],
        switch: SwitchTree | None,
    ) -> Placed:
        counts = msgspec.json.decode(operators, type=tuple[OperatorCount, ...])
        hardware = self.hardware
        transfer = hardware.transfer or TransferModel.PER_PATH
        try:
            measured = MeasuredTimes(counts, self._calibration, dict(corrections))
            # A traced program's operators have measured times.
            is_statement = all(count.library == _DUCKDB and count.seconds is None for count in counts)
            reading = reading_of_statement(measured.graph) if is_statement else None
            plan = plan_of(measured.graph, count, measured, reading)
            machines = Machines(network, count, hardware.fan_in, transfer, hardware.has_finite_sum)
            others = (
                None
                if switch is None
                else partial(
                    _by_switch,
                    plan,
                    machines,
                    accelerators,
                    switch,
                    hardware.switch.setup_s if hardware.switch else 0.0,
                )
            )
            return Placed(
                explain(plan, machines, accelerators, preset=hardware.preset, tie_band=hardware.tie_band, others=others)
            )
        except (AccelerationError, OperatorError, ArithmeticError, ValueError, LookupError) as error:
            return Placed(None, f"cannot model its operators: {' '.join(str(error).split())}")


def _expected_s(operator: ExplainedOperator) -> float | None:
    """Return the time of an operator on its device, with the moves of its inputs; None if unknown."""
    times = operator.decision.times.get(operator.device)
    return None if times is None else min(times.total_s + operator.moved_s, _LONGEST_S)


def _by_switch(  # noqa: PLR0917 - bound except for the last
    plan: Plan,
    machines: Machines,
    accelerators: Sequence[Accelerator],
    tree: SwitchTree,
    setup_s: float,
    works: Works,
) -> list[Choice]:
    """Return the switch as a choice, for the sums that machines send: a job is set up for each task."""
    sums = [_sums(plan.graph.operator[work.name], work) for work in works.items]
    if all(isinstance(each, str) for each in sums):
        return []
    tree = replace(tree, delay_s=tree.delay_s + setup_s)
    switch = switch_choice(works, machines, sums, tree)
    return [switch, *(switch_choice(works, machines, sums, tree, accelerator) for accelerator in accelerators)]


def _sums(operator: Operator, work: Work) -> Sums | str:
    columns = dict(operator.shape).get(SUMS, 0)
    return Sums(math.ceil(work.groups or 1), columns) if columns else "it sends no sums"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def key_of(operators: tuple[OperatorCount, ...]) -> bytes:
    """Return operators as a cache key."""
    return msgspec.json.encode(operators)
