"""The stages as callables, compiled together on first use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from controller.learning.agent.inference.kernels import attending, products, rows, stages
from controller.learning.agent.inference.kernels.processor import HAS_WIDE_REGISTERS, MULTIPLIES_PAIRS
from dataplane.native import Kernel, Library, Module, cache_key, compile_module, load_cached

_OF_ONE: Final[tuple[Kernel[..., None], ...]] = (
    stages.first_of_one,
    stages.attention_of_one,
    stages.feed_forward_of_one,
    stages.affine_of_one,
    stages.head_of_all,
)
_OF_TOKENS: Final[tuple[Kernel[..., None], ...]] = (
    stages.first_of_tokens,
    stages.projection_of_tokens,
    stages.attention_of_tokens,
    stages.feed_forward_of_tokens,
)


@cache
def compiled(kernel: Kernel[..., None]) -> Callable[..., None]:
    """Return the function that calls a stage with addresses and counts, without releasing the interpreter's lock.

    A stage takes a tenth of a millisecond: waiting for a released lock could take fifty times as long.
    """
    library = _library()
    kind = ctypes.PYFUNCTYPE(None, *[ctypes.c_uint64] * len(kernel.signature.shapes))
    function: Any = kind(library.call_address(kernel))
    function.library = library
    return function  # type: ignore[no-any-return]


@cache
def _library() -> Library:
    module = Module("deciding")
    products.write_product_of_one(module)
    products.write_product_of_one_halved(module)
    rows.write_rectified(module)
    rows.write_normalised(module)
    rows.write_weighed(module)
    if HAS_WIDE_REGISTERS:
        products.write_product(module)
        rows.write_turned(module)
        attending.write_attended(module)
    if MULTIPLIES_PAIRS:
        products.write_product_of_pairs(module)
        rows.write_pairs_turned(module)
    for kernel in (*_OF_ONE, *(_OF_TOKENS if HAS_WIDE_REGISTERS else ())):
        module.export(kernel)
    key = cache_key(str(module.ir))
    return load_cached(key) or compile_module(module, key=key)
