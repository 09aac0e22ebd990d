"""Devices per operator of a program, as decided by a scheduler and read by the program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from msgspec import Meta

from controller.apiserver.resources.base import Line, Seconds
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

MOST_OPERATORS: Final = 128
"""Larger programs are left undecided: placing them would hold up everyone else's."""
VARIABLE: Final = "MILLRACE_OPERATOR_DEVICES"
"""Environment variable for the program: JSON mapping operators to kinds of devices, {} if none was chosen."""
MOST_LETTERS: Final = 16_384
"""Limit on that text: users name the operators, and an environment variable holds at most 128 KiB."""


class OperatorDevice(Strict, frozen=True):
    """The kind of device that an operator runs on, and its expected time there, if known.

    `by_switch`: switches add up its sums.
    """

    operator: Line
    device: DeviceKind
    seconds: Seconds | None = None
    by_switch: bool = False


OperatorDevices = Annotated[tuple[OperatorDevice, ...], Meta(max_length=MOST_OPERATORS)]
"""An operator that is not listed runs on the CPU."""


def text_of(devices: Sequence[OperatorDevice]) -> str:
    """Return the text for the program: one line of JSON in ASCII, for any operator names."""
    return json.dumps({choice.operator: choice.device.value for choice in devices})


def problem_of(devices: Sequence[OperatorDevice], operators: Iterable[str], kinds: Iterable[DeviceKind]) -> str:
    """Return why the operators cannot run on these devices, given the available kinds; '' if they can."""
    left, has = set(operators), {*kinds, DeviceKind.CPU}
    for choice in devices:
        if choice.operator not in left:
            return f"operator {choice.operator[:64]!r} does not exist, or already has a device"
        if choice.device not in has:
            return f"operator {choice.operator[:64]!r} should run on a {choice.device.value}, but there is none"
        left.remove(choice.operator)
    letters = len(text_of(devices))
    return f"names of operators take {letters} characters, more than {MOST_LETTERS}" if letters > MOST_LETTERS else ""
