"""A small kernel language: typed Python functions that become machine code (LLVM through llvmlite).

```python
from dataplane.native import Array, Struct, kernel, kernel_library, pointer_to, store_release, u64

class Ring(Struct):                # a ctypes.Structure, laid out as C does
    head: u64
    tail: u64
    mask: u64
    slots: Array[u64]              # a pointer, as is a field of struct type; Inline[...] and InPlace[...] are not

@kernel
def push(ring: Ring, value: u64) -> bool:
    if ring.tail - ring.head > ring.mask:
        return False
    ring.slots[ring.tail & ring.mask] = value
    store_release(ring.tail, ring.tail + 1)
    return True

ring = Ring(mask=63, slots=(ctypes.c_uint64 * 64)())
kernel_library(push).bind(push)(ring, 5)
```

The rules, beyond Python's own:
- Types are u8, u16, u32, u64, i32, i64, bool, structs (references, as in Python) and Array[...]. A local has the type
  of its first assignment or annotation; a bare literal defaults to u64. Widths and signs do not mix: cast with
  as_u32(). Literals and constants of the module (also of an enum, or of the enclosing function) adapt to the other
  operand.
- Arithmetic wraps; // and % round down as in Python; by 0 the quotient is 0 and the remainder the dividend (no trap, as
  in BPF, but a meaningless result: check a divisor that comes from a packet). Shifts by the width or more give 0, or
  the sign. The operand of a shift and its amount have the same type.
- Statements: assignment, if, while, for over range() with a constant step, break, continue, return, pass. Expressions:
  operators, comparisons, and/or/not (they give bool), the conditional expression, calls of kernels, externals and
  operations (dataplane/native/intrinsics.py), and min, max, and len of a constant table.
- A function known only by its address, in a u64, has its type declared by `@signature` and is called with C's
  convention: `invoke(FrameFunction, address, context, frame)`. From Python, `Library.call_address` returns an address.
- Module-level tuples of ints, and `constant_table(u32, ...)`, are read-only arrays. A condition known at translation,
  such as a constant of the module, is decided then, and the excluded branch is not translated. `process_table(u64,
  SYMBOL, ...)` is a table whose numbers belong to the process, not the code, such as secrets of hashes.
- Nothing checks an index or a null pointer. Functions are inlined as LLVM sees fit; `@kernel(inline=True)` insists.

`Module` gathers kernels and generated code, `compile_module` and `load_cached` make a `Library` of it,
`kernel_library` does all of it for a few kernels.
"""

from __future__ import annotations

from dataplane.native.arrays import Array, Inline, InPlace, pointer_to
from dataplane.native.constants import constant_table, process_table
from dataplane.native.errors import NativeError
from dataplane.native.intrinsics import (
    address,
    array_at,
    as_i32,
    as_i64,
    as_u8,
    as_u16,
    as_u32,
    as_u64,
    atomic_add,
    atomic_and,
    atomic_or,
    atomic_sub,
    bswap,
    compare_exchange,
    copy,
    count_leading_zeros,
    count_trailing_zeros,
    exchange,
    fence,
    fill,
    invoke,
    load_acquire,
    load_be16,
    load_be32,
    load_be64,
    load_relaxed,
    load_u16,
    load_u32,
    load_u64,
    offset,
    pause,
    popcount,
    prefetch,
    reference,
    reverse_bits,
    same_bits,
    sizeof,
    spread_be32,
    stack_array,
    store_be16,
    store_be32,
    store_be64,
    store_relaxed,
    store_release,
    store_u16,
    store_u32,
    store_u64,
    view,
)
from dataplane.native.kernels import External, FunctionType, Kernel, external, kernel, signature
from dataplane.native.library import Library, cache_key, compile_module, kernel_library, load_cached
from dataplane.native.module import Module
from dataplane.native.scalars import i32, i64, u8, u16, u32, u64
from dataplane.native.structs import Struct

__all__ = [
    "Array",
    "External",
    "FunctionType",
    "InPlace",
    "Inline",
    "Kernel",
    "Library",
    "Module",
    "NativeError",
    "Struct",
    "address",
    "array_at",
    "as_i32",
    "as_i64",
    "as_u8",
    "as_u16",
    "as_u32",
    "as_u64",
    "atomic_add",
    "atomic_and",
    "atomic_or",
    "atomic_sub",
    "bswap",
    "cache_key",
    "compare_exchange",
    "compile_module",
    "constant_table",
    "copy",
    "count_leading_zeros",
    "count_trailing_zeros",
    "exchange",
    "external",
    "fence",
    "fill",
    "i32",
    "i64",
    "invoke",
    "kernel",
    "kernel_library",
    "load_acquire",
    "load_be16",
    "load_be32",
    "load_be64",
    "load_cached",
    "load_relaxed",
    "load_u16",
    "load_u32",
    "load_u64",
    "offset",
    "pause",
    "pointer_to",
    "popcount",
    "prefetch",
    "process_table",
    "reference",
    "reverse_bits",
    "same_bits",
    "signature",
    "sizeof",
    "spread_be32",
    "stack_array",
    "store_be16",
    "store_be32",
    "store_be64",
    "store_relaxed",
    "store_release",
    "store_u16",
    "store_u32",
    "store_u64",
    "u8",
    "u16",
    "u32",
    "u64",
    "view",
]
