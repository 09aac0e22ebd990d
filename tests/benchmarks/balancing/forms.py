"""Forms compared: the open loop, a threshold autoscaler, and controllers P, PID and PID with fuzzy gains.

The settings of each were tuned by `tests.benchmarks.balancing.tuning` on seeds that no figure is reported for, with the
same search and the same objective. Both kinds request units from the same allocator, within the same limits, and the
part that the pool cannot grant is passed on to clock and precision. ControlSettings itself refuses gains that are
unstable on the linearised plant, and the search leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import msgspec

from controller.balance.control.controller import Controller, ControlSettings, Scheme
from controller.balance.control.expert import ExpertRule
from controller.balance.control.fuzzy.adaptation import FuzzySettings
from controller.balance.control.linear import LinearPlant
from controller.balance.control.pid import PidSettings
from controller.balance.plants.linear import linearised
from controller.balance.rules import IntervalRule, PlatformRule, Rule
from controller.balance.values import Form, UnitState
from tests.benchmarks.balancing.clusters import NOMINAL_MHZ, UNITS, example_jobs
from tests.benchmarks.balancing.family import FULL
from tests.benchmarks.balancing.opponents import ThresholdRule
from tests.benchmarks.balancing.running import STEP_S, Driver

Values = Mapping[str, float]
"""Settings by name, all numbers; yes is 1."""
BUSY: Final = 0.9
"""More is asked for only where cores are as busy as that: with less load nothing queues."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A compared driver: its factory, its settings, and the alternatives tried."""

    name: str
    build: Callable[[str, Values], Driver]
    values: Values
    tried: Mapping[str, tuple[float, ...]]

    @property
    def driver(self) -> Driver:
        """The driver with the settings that were found."""
        return self.build(self.name, self.values)


@cache
def plant_near_balance() -> LinearPlant:
    """Return what gains must be stable on: a device of kind I as it rests under full load, all levers moved.

    Reports are late by no more than levers wait after a move, so there is no delay from one move to the next.
    """
    (at_rest,) = example_jobs(0)
    unit = UnitState(at_rest.precision, NOMINAL_MHZ, UNITS // 2)
    prompt = msgspec.structs.replace(at_rest.plant, delay_s=0.0)
    return linearised(prompt, unit, FULL * at_rest.limit_tops, IntervalRule(), STEP_S)


def open_loop(name: str, values: Values) -> Driver:
    """Return what moves nothing."""
    del values
    return Driver(name)


def threshold(name: str, values: Values) -> Driver:
    """Return the autoscaler; a target of 0: by steps."""
    rule = ThresholdRule(
        high=values["high"], low=values["low"], step=int(values["step"]), target=values["target"] or None
    )
    return Driver(name, rule=rule, wait=int(values["wait"]), reclaims=bool(values["reclaims"]), guarded=False)


def controlled(form: Form, scheme: Scheme) -> Callable[[str, Values], Driver]:
    """Return what makes a driver of a form's gains, with the interval table or (`platform`) the platform's rule."""

    def build(name: str, values: Values) -> Driver:
        pid = PidSettings(
            form=form,
            kp=values["kp"],
            ki=values.get("ki", 0.0),
            kd=values.get("kd", 0.0),
            threshold=values.get("threshold", 0.0),
        )
        fuzzy = FuzzySettings(kp_share=values.get("kp_share", 0.3))
        control = Controller(
            ControlSettings(
                pid=pid, scheme=scheme, expert=_expert(pid, values), fuzzy=fuzzy, plant=plant_near_balance()
            )
        )
        asks_from = values.get("asks_from", BUSY)
        rule: Rule = (
            PlatformRule(asks_from_load=asks_from) if values.get("platform") else IntervalRule(asks_from_load=asks_from)
        )
        return Driver(
            name,
            control=control,
            rule=rule,
            wait=int(values["wait"]),
            margin=values.get("margin", 0.1),
            frees_to_load=values.get("frees_to", 0.0),
        )

    return build


def _expert(pid: PidSettings, values: Values) -> ExpertRule | None:
    """Return the start gains around a law's own, with kp2 = `middle` * kp1; None without a rule."""
    if "middle" not in values:
        return None
    kp, ki, kd = pid.kp, pid.ki, pid.kd
    return ExpertRule(kp=(kp, values["middle"] * kp, kp), ki=(0.0, 0.4 * ki, ki), kd=(kd, kd, 2.0 * kd, kd))


_GAINS: Final[Mapping[str, tuple[float, ...]]] = {
    "kp": (0.75, 1.0, 1.25, 1.5, 1.6, 1.75, 2.0),
    "threshold": (0.0, 0.05, 0.1),
    "wait": (1, 2, 3),
    "margin": (0.02, 0.1, 0.3),
}
_PID: Final[Mapping[str, tuple[float, ...]]] = {
    **_GAINS,
    "ki": (0.01, 0.03, 0.1),
    "kd": (0.02, 0.05, 0.2),
}

OPEN: Final = Compared("open loop", open_loop, {}, {})
AUTOSCALER: Final = Compared(
    "threshold autoscaler",
    threshold,
    {"high": 0.95, "low": 0.7, "step": 2, "target": 0.0, "wait": 1, "reclaims": 0},
    {
        "high": (0.8, 0.9, 0.95, 0.98),
        "low": (0.4, 0.5, 0.6, 0.7, 0.8),
        "step": (1, 2, 4, 8),
        "target": (0.0, 0.7, 0.8, 0.9),
        "wait": (1, 2, 3, 6),
        "reclaims": (0, 1),
    },
)
P_ONLY: Final = Compared(
    "P",
    controlled(Form.P, Scheme.FIXED),
    {"kp": 1.75, "threshold": 0.0, "wait": 1, "margin": 0.1},
    _GAINS,
)
PLATFORM: Final = Compared(
    "P, platform's rule",
    controlled(Form.P, Scheme.FIXED),
    {"kp": 1.5, "threshold": 0.0, "wait": 1, "margin": 0.3, "platform": 1},
    {**_GAINS, "kp": (1.0, 1.5)},
)
PID_FIXED: Final = Compared(
    "PID, fixed gains",
    controlled(Form.PID, Scheme.FIXED),
    {"kp": 1.6, "ki": 0.1, "kd": 0.02, "threshold": 0.05, "wait": 1, "margin": 0.3},
    _PID,
)
PID_FUZZY: Final = Compared(
    "PID, fuzzy gains",
    controlled(Form.PID, Scheme.FUZZY),
    {"kp": 1.6, "ki": 0.1, "kd": 0.02, "kp_share": 0.1, "middle": 0.95, "threshold": 0.05, "wait": 1, "margin": 0.3},
    {**_PID, "kp_share": (0.1, 0.3), "middle": (0.8, 0.95)},
)
FREEING: Final = Compared(
    "PID, fuzzy gains, frees to 0.8",
    controlled(Form.PID, Scheme.FUZZY),
    {**PID_FUZZY.values, "frees_to": 0.8},
    {"frees_to": (0.6, 0.7, 0.8)},
)
COMPARED: Final = (OPEN, AUTOSCALER, P_ONLY, PLATFORM, PID_FIXED, PID_FUZZY, FREEING)
