"""The program's own functions as operators: those that compute in plain Python for a noticeable time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

from controller.cluster.operators.tracing import state
from controller.cluster.operators.tracing.arrays import buffer_of, read_plainly, read_watchfully, touch_s
from controller.cluster.operators.tracing.describing.formats import format_of, word
from controller.cluster.operators.tracing.instruments.calls import calls_reported
from controller.cluster.operators.tracing.places import Place, code_name, is_user_code
from controller.cluster.operators.tracing.recording import Recorder
from controller.cluster.operators.tracing.syntax import normalised
from controller.cluster.operators.tracing.values import Described
from dataplane.topology.values import NumberFormat

KIND: Final = "python"
_MOST_SHAPES: Final = 8
"""Limit of distinct shapes per function; beyond it, sizes carry no information."""
_PARTS: Final = frozenset({"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"})
"""Code objects that are separate in Python but that people see as part of the enclosing function."""
_SINGLY: Final = 100
"""A function that reads this many single elements per library operator that it calls computes itself."""
Shape = tuple[tuple[str, int], ...]


@dataclass(slots=True, eq=False)
class Call:
    """A running call: its start, and the time taken by operators and other own functions that it called."""

    code: CodeType
    began: float
    shape: Shape
    number_format: NumberFormat | None
    arrays: list[np.ndarray[Any, Any]]
    touched: int
    elsewhere_s: float = 0.0
    operators: int = 0
    changed: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)


class OwnFunctions:
    """Watches calls, and records an operator for each."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._shapes: dict[CodeType, set[Shape]] = {}
        self._trees: dict[CodeType, str] = {}
        self._touch_s = 0.0
        self._hot: dict[CodeType, set[int]] = {}
        self._unwatched: Call | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch calls while the block runs."""
        with calls_reported(is_user_code, self._entered, self._left) as works:
            if not works:
                self._recorder.problem("another profiler is active: the program's own functions are not in the graph")
            # Measured with the hook in place, which each read passes, too.
            self._touch_s = touch_s()
            read_watchfully()
            try:
                yield
            finally:
                read_watchfully()

    def _entered(self, frame: FrameType) -> None:
        if not self._recorder.is_listening or frame.f_code.co_name in _PARTS:
            return
        began = perf_counter()
        code = frame.f_code
        shape, number_format, arrays = _arguments(frame)
        call = Call(code, began, self._known(code, shape), number_format, arrays, state.touches[0])
        calls = self._recorder.calls
        calls.append(call)
        if code in self._hot and self._unwatched is None:
            self._unwatched = call
            read_plainly()
        spent = perf_counter() - began
        self._recorder.overhead_s += spent
        call.elsewhere_s += spent

    def _left(self, code: CodeType, value: object) -> None:
        calls = self._recorder.calls
        if not calls or calls[-1].code is not code or not self._recorder.is_listening:
            return
        call = calls.pop()
        ended = perf_counter()
        taken_s = ended - call.began
        touched = state.touches[0] - call.touched
        slowed_s = touched * self._touch_s
        # A function that passes whole arrays to libraries only combines their operators and is none itself.
        is_hot = self._watch_again(call, code)
        if is_hot or touched >= _SINGLY * call.operators:
            self._record(call, value, max(taken_s - call.elsewhere_s - slowed_s, 0.0))
        spent = perf_counter() - ended
        self._recorder.overhead_s += spent + slowed_s
        if calls:
            calls[-1].elsewhere_s += taken_s + spent
            calls[-1].touched += touched

    def _watch_again(self, call: Call, code: CodeType) -> bool:
        """Return whether a function has read single elements unwatched; watch what comes after it."""
        if state.patience[0] == sys.maxsize and self._unwatched in {None, call}:
            self._unwatched = None
            changed = {index for index, array in enumerate(call.arrays) if id(array) in call.changed}
            self._hot.setdefault(code, set()).update(changed)
            read_watchfully()
        if (written := self._hot.get(code)) is None:
            return False
        for index in written:
            if index < len(call.arrays):
                call.changed[index] = call.arrays[index]
        return True

    def _known(self, code: CodeType, shape: Shape) -> Shape:
        seen = self._shapes.setdefault(code, set())
        if shape not in seen:
            if len(seen) == _MOST_SHAPES:
                return ()
            seen.add(shape)
        return shape

    def _record(self, call: Call, value: object, seconds: float) -> None:
        code = call.code
        if (tree := self._trees.get(code)) is None:
            tree = self._trees[code] = normalised(code)
        kind = KIND if tree else word(f"{KIND}-{code.co_name}")
        reads = [buffer_of(array) for array in call.arrays]
        writes = list({buffer.key: buffer for buffer in map(buffer_of, call.changed.values())}.values())
        # A returned array is the function's own if no operator within has written it.
        if isinstance(value, np.ndarray) and not self._recorder.is_known(buffer := buffer_of(value)):
            writes.append(buffer)
        place = Place((code, -1), (code, -1), code_name(code))
        described = Described(kind, call.shape, call.number_format)
        self._recorder.record(described, reads, writes, seconds, place, library="python", code=tree)


def _arguments(frame: FrameType) -> tuple[Shape, NumberFormat | None, list[np.ndarray[Any, Any]]]:
    """Return the sizes of array and list arguments, in order; the format of the first; the arrays."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    if not count:
        return (), None, []
    values = frame.f_locals
    sizes: list[tuple[str, int]] = []
    number_format: NumberFormat | None = None
    arrays = []
    for index, name in enumerate(code.co_varnames[:count]):
        value = values.get(name)
        if isinstance(value, np.ndarray):
            arrays.append(value)
            shape: tuple[int, ...] = value.shape
            number_format = number_format or format_of(value.dtype)
        elif type(value) is list or type(value) is tuple:
            shape = _lengths(value)
            number_format = number_format or _format_within(value)
        else:
            continue
        sizes += [(f"arg{index}_{axis}", size) for axis, size in enumerate(shape)]
    return tuple(sorted(sizes)), number_format, arrays


def _lengths(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - nested lists
    lengths: list[int] = []
    while isinstance(value, list | tuple) and len(lengths) < 4:
        lengths.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(lengths)


def _format_within(value: Any) -> NumberFormat | None:  # noqa: ANN401 - nested lists
    for _ in range(4):
        if not isinstance(value, list | tuple) or not value:
            break
        value = value[0]
    return NumberFormat.FP64 if isinstance(value, float | complex) else None
