"""Minimum bytes moved by table operators with the usual database algorithms, which is more than they read.

Sorting passes over the keys once for each of their bytes (radix), then gathers rows in order; random accesses to a
table move a sector of memory each (Shanbhag et al., A Study of the Fundamental Performance Characteristics of GPUs and
CPUs for Database Analytics, SIGMOD 2020). Numeric operators move their compulsory bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.cluster.operators import Operator
from controller.cluster.operators.kinds import Work
from dataplane.topology.values import DeviceKind

_WORD: Final = 8
_ROW_NUMBER: Final = 4
_KEY_BYTES: Final = 8
_SECTOR: Final[Mapping[DeviceKind, int]] = {DeviceKind.GPU: 32}
_LINE: Final = 64
_CACHED: Final = 1 << 20
"""Bytes of groups that fit into every processor's near caches."""


def moved_bytes(operator: Operator, work: Work, device: DeviceKind) -> int:
    """Return the bytes moved between a device's memory and its processors in one execution."""
    shape, sector = dict(operator.shape), _SECTOR.get(device, _LINE)
    compulsory = work.read_bytes + work.written_bytes
    match operator.kind:
        case "sort":
            columns = -(-shape["row_bytes"] // _WORD)
            over_keys = _KEY_BYTES * (3 * _KEY_BYTES + 2 * _ROW_NUMBER)
            return shape["rows"] * (over_keys + columns * sector) + work.written_bytes
        case "join":
            looked = shape["left_rows"] + 2 * shape["right_rows"] + shape["out_rows"]
            return compulsory + looked * sector
        case "aggregate" if shape["groups"] * shape["group_bytes"] > _CACHED:
            return compulsory + 2 * shape["rows"] * sector
        case _:
            return compulsory
