"""Products of a matrix in bfloat16 and a vector in float32, in machine code.

A decision of one token reads every weight once, and between decisions others push them out of the processor's caches:
its time is the bytes of its weights. In bfloat16 they are half as many. Figures are widened as they are read, products
and sums are float32, so no processor needs instructions for bfloat16. Sums are taken in the order of inputs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from controller.schedulers.learning.agent.inference.folding import Affine
from controller.schedulers.learning.values import Floats
from dataplane.native.library import cache_key, compile_module, load_cached
from dataplane.native.module import Module

_LANES: Final = 16
_VECTORS: Final = 4
ROWS: Final = _LANES * _VECTORS
"""Outputs whose sums are taken side by side; weights are stored by so many rows, padded with zeros."""

_NAME: Final = "halved_product"
_POINTER, _WORD, _FLOAT = ir.PointerType(), ir.IntType(64), ir.FloatType()
_FLOATS, _HALVES, _WIDE = (ir.VectorType(kind, _LANES) for kind in (_FLOAT, ir.IntType(16), ir.IntType(32)))
_Product = Callable[[int, int, int, int, int, int], None]


class HalvedAffine:
    """A product and a sum whose weights are rounded to bfloat16."""

    def __init__(self, layer: Affine) -> None:
        outputs, self._inputs = layer.weight.shape
        self._outputs = outputs
        self._groups = -(-outputs // ROWS)
        weight = np.zeros((self._groups * ROWS, self._inputs), np.float32)
        weight[:outputs] = layer.weight
        self._bias = np.zeros(len(weight), np.float32)
        self._bias[:outputs] = layer.bias
        grouped = rounded(weight).reshape(self._groups, ROWS, self._inputs)
        self._weight = np.ascontiguousarray(grouped.transpose(0, 2, 1))
        # An array's address costs as much as a tenth of the product.
        self._addresses = self._weight.ctypes.data, self._bias.ctypes.data
        self._product = _compiled()

    def __call__(self, figures: Floats) -> Floats:
        """Return the weights times these figures, [inputs], plus the bias: [outputs]."""
        given = np.ascontiguousarray(figures, np.float32)
        if given.shape != (self._inputs,):
            raise ValueError(f"figures are {given.shape}, not ({self._inputs},)")
        found = np.empty(len(self._bias), np.float32)
        self._product(given.ctypes.data, *self._addresses, found.ctypes.data, self._groups, self._inputs)
        return found[: self._outputs]


def rounded(figures: Floats) -> npt.NDArray[np.uint16]:
    """Return finite figures as bfloat16, to the nearest, ties to even: the upper halves of their float32."""
    bits = figures.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@functools.cache
def _compiled() -> _Product:
    """Return the function: addresses of figures, weights, bias and sums, then how many groups and inputs there are."""
    module = Module("halved")
    _write(module)
    key = cache_key(str(module.ir))
    library = load_cached(key) or compile_module(module, key=key)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 6)
    function: Any = kind(library.call_address(_NAME))
    function.library = library
    return function  # type: ignore[no-any-return]


def _write(module: Module) -> None:
    """Write `sums[r] = bias[r] + weights[r, :] * figures` for groups of rows, whose sums stay in registers."""
    signature = ir.FunctionType(ir.VoidType(), [*[_POINTER] * 4, _WORD, _WORD])
    function = ir.Function(module.ir, signature, _NAME)
    figures, weights, bias, sums, groups, inputs = function.args
    sums.add_attribute("noalias")
    entry, group, column, done, end = (
        function.append_basic_block(name) for name in ("entry", "group", "column", "done", "end")
    )
    ir.IRBuilder(entry).branch(group)

    at_group = ir.IRBuilder(group)
    number = _counter(at_group, entry)
    rows = at_group.mul(number, _WORD(ROWS))
    begin = at_group.mul(rows, inputs)
    starts = [at_group.load(_vector(at_group, bias, rows, part, _FLOAT), typ=_FLOATS, align=4) for part in _parts()]
    at_group.branch(column)

    at_column = ir.IRBuilder(column)
    index = _counter(at_column, group)
    before = [at_column.phi(_FLOATS) for _ in _parts()]
    figure = at_column.load(at_column.gep(figures, [index], source_etype=_FLOAT), typ=_FLOAT, align=4)
    spread = at_column.insert_element(_FLOATS(ir.Undefined), figure, ir.IntType(32)(0))
    spread = at_column.shuffle_vector(spread, _FLOATS(ir.Undefined), ir.Constant(_WIDE, None))
    place = at_column.add(begin, at_column.mul(index, _WORD(ROWS)))
    multiply_add = module.intrinsic(f"llvm.fmuladd.v{_LANES}f32", _FLOATS, [_FLOATS] * 3)
    after = []
    for part, known, start in zip(_parts(), before, starts, strict=True):
        halves = at_column.load(_vector(at_column, weights, place, part, _HALVES.element), typ=_HALVES, align=2)
        wide = at_column.shl(at_column.zext(halves, _WIDE), ir.Constant(_WIDE, [16] * _LANES))
        after.append(at_column.call(multiply_add, [at_column.bitcast(wide, _FLOATS), spread, known]))
        known.add_incoming(start, group)
        known.add_incoming(after[-1], column)
    _repeat(at_column, index, inputs, done)

    at_done = ir.IRBuilder(done)
    for part, found in zip(_parts(), after, strict=True):
        at_done.store(found, _vector(at_done, sums, rows, part, _FLOAT), align=4)
    _repeat(at_done, number, groups, end, group)
    ir.IRBuilder(end).ret_void()


def _parts() -> range:
    return range(_VECTORS)


def _counter(builder: ir.IRBuilder, before: ir.Block) -> Any:  # noqa: ANN401 - llvmlite is untyped
    """Return a number that is 0 when a loop is entered; `_repeat` adds 1 to it."""
    found = builder.phi(_WORD)
    found.add_incoming(_WORD(0), before)
    return found


def _repeat(builder: ir.IRBuilder, counter: Any, count: Any, after: ir.Block, loop: ir.Block | None = None) -> None:  # noqa: ANN401
    """Go round again until a counter has had so many numbers."""
    loop = loop or builder.block
    following = builder.add(counter, _WORD(1))
    counter.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_unsigned("<", following, count), loop, after)


def _vector(builder: ir.IRBuilder, array: Any, start: Any, part: int, element: ir.Type) -> Any:  # noqa: ANN401
    """Return a pointer to one of the vectors that stand side by side from an element on."""
    return builder.gep(array, [builder.add(start, _WORD(part * _LANES))], source_etype=element)
