"""The stages, compiled together when the first of them is wanted, ready to be called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from llvmlite import binding as llvm

from controller.schedulers.learning.agent.inference.kernels import attending, products, rows, stages
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
    stages.attention_of_tokens,
    stages.feed_forward_of_tokens,
)


def multiplies_pairs() -> bool:
    """Whether this processor has AVX-512's instructions for bfloat16, which stages of many tokens are made of."""
    features = llvm.get_host_cpu_features()
    return all(features.get(name, False) for name in ("avx512f", "avx512bw", "avx512bf16"))


@cache
def compiled(kernel: Kernel[..., None]) -> Callable[..., None]:
    """Return the function that calls a stage with addresses and counts, and keeps the interpreter's lock meanwhile.

    A stage takes a tenth of a millisecond: who gave the lock away might wait for it fifty times as long.
    """
    library = _library()
    kind = ctypes.PYFUNCTYPE(None, *[ctypes.c_uint64] * len(kernel.signature.shapes))
    function: Any = kind(library.call_address(kernel))
    function.library = library
    return function  # type: ignore[no-any-return]


@cache
def _library() -> Library:
    module = Module("deciding")
    exported = [*_OF_ONE]
    products.write_product_of_one(module)
    for write in (rows.write_rectified, rows.write_normalised, rows.write_weighed):
        write(module)
    if multiplies_pairs():
        exported += _OF_TOKENS
        for write in (products.write_product, products.write_product_of_pairs, attending.write_attended):
            write(module)
        rows.write_turned(module)
        rows.write_pairs_turned(module)
    for kernel in exported:
        module.export(kernel)
    key = cache_key(str(module.ir))
    return load_cached(key) or compile_module(module, key=key)
