"""What is compared: the open loop, a threshold autoscaler, and controllers P, PID and PID with fuzzy gains.

Settings of each were found by `tests.benchmarks.balancing.tuning` on seeds that no figure is reported of, by the same
search for the same objective. Both kinds ask for units through the same allocator, within the same limits, and what the
pool does not give is handed on to clock and precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.balance.control.controller import Controller, ControlSettings, Scheme
from controller.balance.control.fuzzy.adaptation import FuzzySettings
from controller.balance.control.pid import PidSettings
from controller.balance.rules import IntervalRule, PlatformRule, Rule
from controller.balance.values import Form
from tests.benchmarks.balancing.opponents import ThresholdRule
from tests.benchmarks.balancing.running import Driver

Values = Mapping[str, float]
"""Settings by name, all numbers; yes is 1."""
BUSY: Final = 0.9
"""More is asked for only where cores are as busy as that: with less load nothing queues."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One that is compared: how a driver is made of its settings, what they are, and what else was tried."""

    name: str
    build: Callable[[str, Values], Driver]
    values: Values
    tried: Mapping[str, tuple[float, ...]]

    @property
    def driver(self) -> Driver:
        """The driver with the settings that were found."""
        return self.build(self.name, self.values)


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
        control = Controller(ControlSettings(pid=pid, scheme=scheme, fuzzy=fuzzy))
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
        )

    return build


_GAINS: Final[Mapping[str, tuple[float, ...]]] = {
    "kp": (1.0, 1.5, 2.0, 2.5, 3.0, 4.0),
    "wait": (1, 2, 3),
    "margin": (0.02, 0.1, 0.3),
}
_PID: Final[Mapping[str, tuple[float, ...]]] = {
    **_GAINS,
    "ki": (0.01, 0.02, 0.05, 0.1),
    "kd": (0.05, 0.1, 0.3),
    "threshold": (0.0, 0.1),
}
_P: Final = {"kp": 2.0, "wait": 2, "margin": 0.1}
_START: Final = {**_P, "ki": 0.02, "kd": 0.1, "threshold": 0.1}

OPEN: Final = Compared("open loop", open_loop, {}, {})
AUTOSCALER: Final = Compared(
    "threshold autoscaler",
    threshold,
    {"high": 0.95, "low": 0.6, "step": 2, "target": 0.8, "wait": 2, "reclaims": 0},
    {
        "high": (0.8, 0.9, 0.95, 0.98),
        "low": (0.4, 0.5, 0.6, 0.7, 0.8),
        "step": (1, 2, 4, 8),
        "target": (0.0, 0.7, 0.8, 0.9),
        "wait": (1, 2, 3, 6),
        "reclaims": (0, 1),
    },
)
P_ONLY: Final = Compared("P", controlled(Form.P, Scheme.FIXED), _P, _GAINS)
PLATFORM: Final = Compared(
    "P, platform's rule", controlled(Form.P, Scheme.FIXED), {**_P, "platform": 1}, {**_GAINS, "kp": (1.0, 2.0)}
)
PID_FIXED: Final = Compared("PID, fixed gains", controlled(Form.PID, Scheme.FIXED), _START, _PID)
PID_FUZZY: Final = Compared(
    "PID, fuzzy gains",
    controlled(Form.PID, Scheme.FUZZY),
    {**_START, "kp_share": 0.3},
    {**_PID, "kp_share": (0.1, 0.3, 0.5)},
)
COMPARED: Final = (OPEN, AUTOSCALER, P_ONLY, PLATFORM, PID_FIXED, PID_FUZZY)
