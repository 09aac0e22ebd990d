"""Torch operations, forward and backward: every one passes its dispatcher; import this only after torch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from time import perf_counter
from types import FrameType
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from controller.cluster.operators.tracing import state
from controller.cluster.operators.tracing.describing.torch_calls import describe
from controller.cluster.operators.tracing.places import Place, place_of
from controller.cluster.operators.tracing.recording import Buffer

_MOST_PLACES: Final = 100_000
"""Forward operations whose backward pass may still come."""


class RecordingMode(TorchDispatchMode):  # type: ignore[misc]
    """Records each operation; those of backward passes get the place of the forward one."""

    def __init__(self) -> None:
        super().__init__()
        self._forward: OrderedDict[int, Place] = OrderedDict()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch has no types here
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Execute the operation as usual, and record it."""
        kwargs = kwargs or {}
        recorder = state.listening()
        if recorder is None:
            return func(*args, **kwargs)
        entered = perf_counter()
        is_away = any(tensor.is_cuda for tensor in _tensors((args, kwargs)))
        with recorder.inside():
            # CUDA runs asynchronously: without waiting, only the launch would be measured.
            if is_away:
                torch.cuda.synchronize()
            began = perf_counter()
            result = func(*args, **kwargs)
            if is_away:
                torch.cuda.synchronize()
            seconds = perf_counter() - began
        place = self._place()
        try:
            self._note(recorder, func, (args, kwargs, result), seconds, place)
        except Exception as error:  # noqa: BLE001 - a failure of the tracer must not stop the program
            recorder.problem(f"{func} was called in an unknown way ({type(error).__name__}): it is left out")
        recorder.passed(seconds, perf_counter() - entered - seconds)
        return result

    def _note(self, recorder: Any, func: Any, call: tuple[Any, Any, Any], seconds: float, place: Place) -> None:  # noqa: ANN401
        args, kwargs, result = call
        schema = func._schema  # noqa: SLF001 - torch's description of the operation
        reads = [buffer for tensor in _tensors((args, kwargs)) if (buffer := _buffer(tensor)) is not None]
        writes = [buffer for tensor in _tensors(result) if (buffer := _buffer(tensor)) is not None]
        if schema.is_mutable:
            changed = [
                value
                for argument, value in _arguments(schema, args, kwargs)
                if argument.alias_info is not None and argument.alias_info.is_write
            ]
            writes += [buffer for tensor in _tensors(changed) if (buffer := _buffer(tensor)) is not None]
        elif writes and {write.key for write in writes} <= {read.key for read in reads}:
            return
        is_each = torch.Tag.pointwise in func.tags
        described = describe(schema.name.partition("::")[2], args, kwargs, result, is_each=is_each)
        if described is None:
            recorder.pass_on(reads, writes)
        else:
            recorder.record(described, reads, writes, seconds, place, library="torch")

    def _place(self) -> Place:
        node = torch._C._current_autograd_node()  # noqa: SLF001 - the only way to ask
        if node is not None:
            current = place_of(state.caller())
            forward = self._forward.get(node._sequence_nr())  # noqa: SLF001
            if forward is None:
                return current._replace(label=f"backward at {current.label}")
            return Place(forward.user, (current.user[0], -1 - forward.inner[1]), f"backward of {forward.label}")
        place = _in_module(place_of(state.caller()))
        # The operation has taken its number already: the counter names the next one.
        self._forward[torch._C._autograd._get_sequence_nr() - 1] = place  # noqa: SLF001
        if len(self._forward) > _MOST_PLACES:
            self._forward.popitem(last=False)
        return place


def _in_module(place: Place) -> Place:
    """Return a place that distinguishes the modules of one network, which one instruction may call in turn."""
    frame: FrameType | None = state.caller()
    while frame is not None and (frame.f_code, frame.f_lasti) != place.user:
        code = frame.f_code
        if code.co_name == "forward" and code.co_argcount:
            owner = frame.f_locals.get(code.co_varnames[0])
            if isinstance(owner, torch.nn.Module):
                return place._replace(inner=(place.inner[0], id(owner)))
        frame = frame.f_back
    return place


def _arguments(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    for index, argument in enumerate(schema.arguments):
        if index < len(args):
            yield argument, args[index]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _tensors(value: Any) -> Iterator[Any]:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _buffer(tensor: Any) -> Buffer | None:  # noqa: ANN401
    """Return the memory of a tensor, None if it has none (sparse, fake)."""
    if tensor.layout is not torch.strided:
        values = tensor.values() if tensor.layout in _COMPRESSED else None
        return None if values is None else _buffer(values)
    try:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
    except (RuntimeError, NotImplementedError):
        return None
    nbytes = tensor.numel() * tensor.element_size()
    return Buffer(address, nbytes, None, nbytes < storage.nbytes()) if address else None


_COMPRESSED: Final = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})


def instruments() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return functions that start and stop recording this thread's operations."""
    mode = RecordingMode()
    return mode.__enter__, lambda: mode.__exit__(None, None, None)
