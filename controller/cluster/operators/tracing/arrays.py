"""Arrays that record the operations on them: a numpy subclass that intercepts every operation.

numpy itself executes each operation, by the same call on the plain array underneath, so that results are identical
to the last bit; the output is again such an array. Only `type(a) is numpy.ndarray` and `a.base` tell the difference.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np

from controller.cluster.operators.tracing import state
from controller.cluster.operators.tracing.describing import functions
from controller.cluster.operators.tracing.places import place_of
from controller.cluster.operators.tracing.recording import Buffer, Recorder
from controller.cluster.operators.tracing.values import Described

Describe = Callable[[tuple[Any, ...], dict[str, Any], Any], Described | None]
_NO_OPERANDS: Final = frozenset({"out", "axis", "axes", "dtype", "where", "keepdims", "order", "casting", "mode", "n"})
_SAMPLE: Final = 2000
_PATIENCE: Final = 2000
"""Single elements after which a loop is no longer watched."""
_DEEPEST: Final = 8
"""Nesting depth to which lists and tuples are searched for arrays."""


_view: Final = np.ndarray.view
_get: Final = np.ndarray.__getitem__
_set: Final = np.ndarray.__setitem__


class TracedArray(np.ndarray[Any, np.dtype[Any]]):
    """An array whose operations are recorded while a recorder is active; otherwise it acts as a plain one."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        changes = method == "at"
        return observed(getattr(ufunc, method), inputs, kwargs, functions.of_ufunc(ufunc, method), changes=changes)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        return observed(func, args, kwargs, functions.of_function(func))

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        kind = type(key)
        if kind is int or kind is tuple or kind is slice:
            value = _get(self, key)
            if type(value) is not TracedArray:
                # A single element: loops of the program's own read millions of them.
                state.touches[0] += 1
                if state.touches[0] >= state.patience[0]:
                    read_plainly()
                return value
            if functions.is_basic(key):
                return value
        return observed(operator.getitem, (self, key), {}, functions.of_gather)

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401
        kind = type(key)
        is_single = kind is int or (kind is tuple and all(type(part) is int for part in key))
        if is_single and not isinstance(value, np.ndarray):
            state.touches[0] += 2
            if (recorder := state.listening()) is not None:
                recorder.changed(self)
            _set(self, key, value)
        else:
            observed(operator.setitem, (self, key, value), {}, functions.of_scatter, changes=True)

    def __repr__(self) -> str:
        return repr(plain(self))

    def __str__(self) -> str:
        return str(plain(self))

    def __format__(self, format_spec: str) -> str:
        return format(plain(self), format_spec)

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401
        return plain(self).__reduce_ex__(protocol)

    def __iter__(self) -> Iterator[Any]:
        return map(traced, plain(self))


def read_plainly() -> None:
    """Read and write single elements as for plain arrays, in a loop of the program's own.

    Other uses of indices in such a loop are not recorded until `read_watchfully`.
    """
    state.patience[0] = sys.maxsize
    for name in _WATCHED:
        if name in vars(TracedArray):
            delattr(TracedArray, name)


def read_watchfully() -> None:
    """Watch reads and writes of arrays again, for a few thousand single elements."""
    state.patience[0] = state.touches[0] + _PATIENCE
    for name, method in _WATCHED.items():
        setattr(TracedArray, name, method)


_WATCHED: Final = {"__getitem__": TracedArray.__getitem__, "__setitem__": TracedArray.__setitem__}


def touch_s() -> float:
    """Measure the extra time to read a single element of a traced array compared to a plain one."""
    state.patience[0] = sys.maxsize
    array = np.zeros((2, 2))
    times = []
    for subject in (array, traced(array)):
        began = perf_counter()
        for _ in range(_SAMPLE):
            subject[1, 1]
        times.append((perf_counter() - began) / _SAMPLE)
    return max(times[1] - times[0], 0.0)


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a program hands to numpy
    """Replace traced arrays in a value with plain ones, also within lists, tuples and mappings."""
    return _Unwrapped().plain(value)


def traced(value: Any) -> Any:  # noqa: ANN401
    """Replace plain arrays in a value with traced ones, also within lists and tuples."""
    if type(value) is np.ndarray:
        return _view(value, TracedArray)
    if type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
        parts = [traced(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if type(value) is list and any(type(part) is np.ndarray for part in value):
        return [traced(part) for part in value]
    return value


class _Unwrapped:
    """Plain arrays of a call's arguments, with the traced ones they came from."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.numbers: list[Any] = []
        self._originals: dict[int, Any] = {}

    def plain(self, value: Any, depth: int = 0) -> Any:  # noqa: ANN401
        kind = type(value)
        if kind is TracedArray:
            under = _view(value, np.ndarray)
            self._originals[id(under)] = value
            self.arrays.append(under)
            return under
        if isinstance(value, np.ndarray):
            self.arrays.append(value)
        elif isinstance(value, np.generic):
            self.numbers.append(value)
        elif depth < _DEEPEST:
            if kind is tuple or kind is list:
                return kind(self.plain(part, depth + 1) for part in value)
            if hasattr(value, "nnz") and isinstance(getattr(value, "data", None), np.ndarray):
                # A sparse matrix: its values are an array.
                self.arrays.append(value.data)
            if kind is dict:
                return {key: self.plain(part, depth + 1) for key, part in value.items()}
        return value

    @property
    def is_traced(self) -> bool:
        """True if any argument was a traced array."""
        return bool(self._originals)

    def original(self, result: Any) -> Any:  # noqa: ANN401
        """Return a result, or the caller's own array if it is one of the arguments."""
        return self._originals.get(id(result), result)

    def rewrapped(self, result: Any) -> Any:  # noqa: ANN401
        """Return a result with traced arrays, or the caller's own if it is one of the arguments."""
        if (original := self._originals.get(id(result))) is not None:
            return original
        if type(result) is tuple and any(id(part) in self._originals for part in result):
            return tuple(self._originals.get(id(part), traced(part)) for part in result)
        return traced(result)


def buffer_of(array: np.ndarray[Any, Any]) -> Buffer:
    """Return the memory of an array: views of one array share it."""
    owner = array
    base = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    address = owner.__array_interface__["data"][0]
    return Buffer(address, array.nbytes, owner, array.nbytes < owner.nbytes)


def observed(
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    describe: Describe,
    *,
    changes: bool = False,
    library: str = "numpy",
) -> Any:  # noqa: ANN401
    """Execute and record a call, returning traced arrays; `changes`: it writes its first argument."""
    under = _Unwrapped()
    recorder = state.listening()
    if recorder is None:
        result = call(*under.plain(args), **under.plain(kwargs))
        return under.rewrapped(result) if state.active() is not None and under.is_traced else under.original(result)
    entered = perf_counter()
    args, kwargs = under.plain(args), under.plain(kwargs)
    with recorder.inside():
        began = perf_counter()
        result = call(*args, **kwargs)
        ended = perf_counter()
    # Operands may be keyword arguments: all of them come in the order given.
    operands = (*args, *(value for name, value in kwargs.items() if name not in _NO_OPERANDS))
    try:
        _note(recorder, _Call(describe, operands, kwargs, result, changes, library), under, ended - began)
    except Exception as error:  # noqa: BLE001 - a failure of the tracer must not stop the program
        name = getattr(call, "__name__", "a call")
        recorder.problem(f"{name} was called in an unknown way ({type(error).__name__}): it is left out")
    rewrapped = under.rewrapped(result)
    recorder.passed(ended - began, perf_counter() - entered - (ended - began))
    return rewrapped


class _Call(NamedTuple):
    describe: Describe
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    changes: bool
    library: str


def _note(recorder: Recorder, call: _Call, under: _Unwrapped, seconds: float) -> None:
    out = call.kwargs.get("out")
    outs = {id(array) for array in (out if isinstance(out, tuple) else (out,)) if array is not None}
    is_stored = call.describe is functions.of_scatter
    if is_stored:
        outs.add(id(call.args[0]))
    reads = [buffer_of(array) for array in under.arrays if id(array) not in outs]
    reads += [Buffer(-id(number), number.nbytes, None) for number in under.numbers]
    if call.changes:
        writes = [_stored(call.args[0], call.args[1]) if is_stored else buffer_of(call.args[0])]
    else:
        writes = list(_results(recorder, call.result))
    is_given = any(call.result is array for array in under.arrays)
    if not call.changes and not is_given and writes and _is_view(reads, writes):
        return
    described = call.describe(call.args, call.kwargs, call.result)
    place = place_of(state.caller())
    if described is not None and not place.is_assembly:
        recorder.record(described, reads, writes, seconds, place, library=call.library)
    elif not is_given:
        recorder.pass_on(reads, writes)


def _stored(array: np.ndarray[Any, Any], key: Any) -> Buffer:  # noqa: ANN401
    """Return the part of an array's memory that an index selects, or a bound of it."""
    whole = buffer_of(array)
    if not functions.is_basic(key):
        return whole._replace(is_part=True)
    nbytes = array[key].nbytes if isinstance(array[key], np.ndarray) else array.itemsize
    return whole._replace(nbytes=nbytes, is_part=whole.is_part or nbytes < array.nbytes)


def _is_view(reads: list[Buffer], writes: list[Buffer]) -> bool:
    keys = {read.key for read in reads}
    return all(write.key in keys for write in writes)


def _results(recorder: Recorder, result: Any) -> Iterator[Buffer]:  # noqa: ANN401
    if isinstance(result, np.ndarray):
        yield buffer_of(result)
    elif isinstance(result, np.generic):
        yield recorder.keep(result)
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _results(recorder, part)


def _operated(name: str, *, changes: bool = False) -> Callable[..., Any]:
    """Return an operator that numpy applies to plain arrays: only those get its short cuts for powers."""
    function = getattr(operator, name)

    def method(self: TracedArray, *others: Any) -> Any:  # noqa: ANN401
        return observed(function, (self, *others), {}, functions.of_operator(name), changes=changes)

    return method


def _reflected(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: TracedArray, other: Any) -> Any:  # noqa: ANN401
        return observed(function, (other, self), {}, functions.of_operator(name))

    return method


def _called(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        describe = functions.of_method(name)
        return observed(function, (self, *args), kwargs, describe, changes=name in functions.CHANGING)

    return method


for _name in functions.BINARY:
    setattr(TracedArray, f"__{_name}__", _operated(f"__{_name}__"))
    setattr(TracedArray, f"__r{_name}__", _reflected(f"__{_name}__"))
    if hasattr(np.ndarray, f"__i{_name}__"):
        setattr(TracedArray, f"__i{_name}__", _operated(f"__i{_name}__", changes=True))
for _name in functions.COMPARING:
    setattr(TracedArray, f"__{_name}__", _operated(f"__{_name}__"))
for _name in functions.METHODS:
    setattr(TracedArray, _name, _called(_name))
