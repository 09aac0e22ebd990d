"""Tables in memory that compiled code reads without locks while Python changes them.

`NativeState` keeps a native copy of everything that a `ForwardingState` holds; the kernels look packets up in it. The
Python objects remain authoritative: they check every change, and answer every read.

    lookup_kernel(keys)      the kernel, of (table, key words), that looks up a table with this key, or a value set
    empty_kernel(keys)       the one, of (table), that says if a table with this key has no entry; None for tries
    select_member            of (entry, hash): the action that an entry with a `choice` leads to, or null
    NO_ACTION                the action number of a default entry that runs nothing
    execute_meter            of (cell, now in microseconds, bytes): the packet's colour

A key is an array of words: each field, in the table's order, takes ceil(width / 64), the low one first.
"""

from __future__ import annotations

from typing import Any

from dataplane.native import Kernel
from dataplane.program.objects import KeyField
from dataplane.switch.tables.native.exact import is_empty_exact, lookup_exact
from dataplane.switch.tables.native.mask import is_empty_mask, lookup_mask
from dataplane.switch.tables.native.meters import execute_meter
from dataplane.switch.tables.native.mirrors import ExactMirror, MaskMirror, TrieMirror, mirror_kind
from dataplane.switch.tables.native.requests import NO_ACTION
from dataplane.switch.tables.native.selection import select_member
from dataplane.switch.tables.native.state import NativeState
from dataplane.switch.tables.native.trie import lookup_trie

__all__ = ["NO_ACTION", "NativeState", "empty_kernel", "execute_meter", "lookup_kernel", "lookup_mask", "select_member"]

_LOOKUPS: dict[type[Any], Kernel[..., Any]] = {
    ExactMirror: lookup_exact,
    TrieMirror: lookup_trie,
    MaskMirror: lookup_mask,
}

_EMPTY: dict[type[Any], Kernel[..., Any]] = {ExactMirror: is_empty_exact, MaskMirror: is_empty_mask}


def lookup_kernel(keys: tuple[KeyField, ...]) -> Kernel[..., Any]:
    """Return the kernel `(table, key words) -> Entry`, null if nothing matches, for tables with this key.

    Value sets are all looked up with `lookup_mask`.
    """
    return _LOOKUPS[mirror_kind(keys)]


def empty_kernel(keys: tuple[KeyField, ...]) -> Kernel[..., Any] | None:
    """Return the kernel `(table) -> bool` that returns whether a table with this key has no entry, if there is one."""
    return _EMPTY.get(mirror_kind(keys))
