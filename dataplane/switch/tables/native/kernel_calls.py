"""The kernels that Python calls to change native tables, compiled and bound."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, cast

from dataplane.errors import EntryError, EntryFault
from dataplane.native import Kernel, kernel_library
from dataplane.native.scalars import CTYPES, Scalar
from dataplane.switch.tables.native import bulk, exact, mask, memory, meters, publish, selection, trie
from dataplane.switch.tables.native.records import DONE

WRITERS: tuple[Kernel[..., Any], ...] = (
    memory.collect,
    memory.free_retired,
    memory.release,
    exact.make_exact,
    exact.put_exact,
    exact.remove_exact,
    exact.free_exact,
    trie.make_trie,
    trie.put_trie,
    trie.remove_trie,
    trie.free_trie,
    mask.make_rows,
    mask.make_space,
    mask.insert_row,
    mask.move_row,
    mask.remove_row,
    mask.put_mask,
    mask.remove_mask,
    mask.drop_mask,
    bulk.put_exact_rows,
    bulk.put_trie_rows,
    bulk.put_mask_rows,
    meters.write_meter,
    publish.put_default,
    publish.put_replicas,
    publish.publish,
    publish.store_word,
    selection.make_handle,
    selection.put_choice,
    selection.retire_handle,
    selection.free_handle,
)


@functools.cache
def function(kernel: Kernel[..., Any]) -> Callable[..., int]:
    """Return a writer as a function of numbers; pointers are addresses.

    It keeps the GIL: most writes take less than a microsecond, and releasing it would cost more.
    """
    library = kernel_library(*WRITERS)
    signature = kernel.signature
    result = None if signature.result is None else _ctype(signature.result)
    kind = ctypes.PYFUNCTYPE(result, *map(_ctype, signature.shapes))
    bound = kind(library.call_address(kernel))
    cast("Any", bound).library = library
    return bound


def _ctype(shape: object) -> type[Any]:
    return CTYPES[shape] if isinstance(shape, Scalar) else ctypes.c_uint64


def check(status: int, where: str) -> None:
    """Raise EntryError naming `where` unless a write succeeded."""
    if status != DONE:
        raise EntryError(EntryFault.FULL, "not enough memory for its entries", where=where)


def check_made(address: int, where: str) -> int:
    """Return the address of the new object; raise EntryError naming `where` if it is 0."""
    if not address:
        raise EntryError(EntryFault.FULL, "not enough memory for its entries", where=where)
    return address
