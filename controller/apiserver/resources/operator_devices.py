"""Devices of operators: where each one of a program is to run, as a scheduler has decided and its program reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from msgspec import Meta

from controller.apiserver.resources.base import Line
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

MOST_OPERATORS: Final = 128
"""Of more nothing is decided: whoever may submit them would hold up all others while they are placed."""
VARIABLE: Final = "MILLRACE_OPERATOR_DEVICES"
"""What a program finds them in: a JSON object of operators' names and kinds of devices, {} where none was chosen."""
MOST_LETTERS: Final = 16_384
"""Of that text: whoever submits a task names its operators, and an environment has room for 128 KiB in a variable."""


class OperatorDevice(Strict, frozen=True):
    """The kind of device that an operator is to run on."""

    operator: Line
    device: DeviceKind


OperatorDevices = Annotated[tuple[OperatorDevice, ...], Meta(max_length=MOST_OPERATORS)]
"""An operator that is not there runs on the CPU."""


def text_of(devices: Sequence[OperatorDevice]) -> str:
    """Return what a program is told: JSON in one line of ASCII, whatever operators are called."""
    return json.dumps({one.operator: one.device.value for one in devices})


def problem_of(devices: Sequence[OperatorDevice], operators: Iterable[str], kinds: Iterable[DeviceKind]) -> str:
    """Return why devices cannot be those of these operators on what has devices of these kinds, '' if they can."""
    left, has = set(operators), {*kinds, DeviceKind.CPU}
    for one in devices:
        if one.operator not in left:
            return f"no operator is called {one.operator[:64]!r}, or it has a device already"
        if one.device not in has:
            return f"operator {one.operator[:64]!r} is to run on a {one.device.value}, and there is none"
        left.remove(one.operator)
    letters = len(text_of(devices))
    return f"names of operators take {letters} letters, more than {MOST_LETTERS}" if letters > MOST_LETTERS else ""
