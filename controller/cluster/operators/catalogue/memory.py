"""Kinds bound by memory, disks and networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.cluster.operators.counting import Counting, Kind, Sizes

_WORD_BYTES: Final = 8
_STREAM: Final = "McCalpin, STREAM, 1995: bytes without those of write-allocate"
_MOVED: Final = "moves bytes and computes nothing"


def _stencil_points(s: Sizes) -> int:
    return s["neighbours"] or (7 if s["planes"] > 1 else 5)


def _grid(s: Sizes, width: float) -> tuple[float, float]:
    points = s["rows"] * s["columns"] * s["planes"]
    return points * width, points * width


MEMORY: Final[Mapping[str, Kind]] = {
    "stream-triad": Kind(
        "a = b + s c, of n numbers",
        ("n",),
        lambda s: 2 * s["n"],
        lambda s, w: (2 * s["n"] * w, s["n"] * w),
        _STREAM,
    ),
    "elementwise": Kind(
        "an operation on each of n numbers of so many operands",
        ("n",),
        lambda s: s["n"] * max(s["operands"] - 1, 1),
        lambda s, w: (s["n"] * s["operands"] * w, s["n"] * w),
        "one operation between two operands, or one for each number of a single operand",
        optional=(("operands", 2),),
    ),
    "reduction": Kind(
        "n numbers reduced to one, such as their sum",
        ("n",),
        lambda s: max(s["n"] - 1, 0),
        lambda s, w: (s["n"] * w, w),
        "one operation fewer than numbers",
    ),
    "scan": Kind(
        "the sums of the first 1, 2, ... n numbers",
        ("n",),
        lambda s: max(s["n"] - 1, 0),
        lambda s, w: (s["n"] * w, s["n"] * w),
        "one after the other, as one core does it; parallel scans need more (Blelloch, 1990)",
        counting=Counting.LOWER_BOUND,
    ),
    "copy": Kind(
        "n numbers moved to another place in memory, in any order",
        ("n",),
        lambda _: 0,
        lambda s, w: (s["n"] * w, s["n"] * w),
        _MOVED,
    ),
    "stencil": Kind(
        "a sweep over a grid, each point from itself and its neighbours: 5 points in a plane, 7 in space, or as given",
        ("rows", "columns"),
        lambda s: (2 * _stencil_points(s) - 1) * s["rows"] * s["columns"] * s["planes"],
        _grid,
        "a multiplication per point of the stencil, and the additions between them",
        counting=Counting.NOMINAL,
        optional=(("planes", 1), ("neighbours", 0)),
    ),
    "random-access": Kind(
        "words of 64 bits read and changed at random places of a table of so many words",
        ("words", "updates"),
        lambda s: s["updates"],
        lambda s, _: (s["updates"] * _WORD_BYTES, s["updates"] * _WORD_BYTES),
        "Luszczek et al., HPC Challenge, 2005: RandomAccess, one exclusive or an update",
        unit="update",
        of_bytes=True,
    ),
    "random-numbers": Kind(
        "n random numbers",
        ("n",),
        lambda s: s["n"],
        lambda s, w: (0, s["n"] * w),
        "evaluations; the operations of each depend on the generator",
        unit="evaluation",
    ),
    "small-files": Kind(
        "so many files of so many bytes: written to the disk, and read back",
        ("files", "file_bytes"),
        None,
        lambda s, _: (s["files"] * s["file_bytes"], s["files"] * s["file_bytes"]),
        _MOVED,
        of_bytes=True,
    ),
    "bulk-io": Kind(
        "bytes written to the disk one after the other, and read back",
        ("nbytes",),
        None,
        lambda s, _: (s["nbytes"], s["nbytes"]),
        _MOVED,
        of_bytes=True,
    ),
    "network-pull": Kind(
        "bytes that one host reads from another over so many connections",
        ("nbytes",),
        None,
        lambda s, _: (s["nbytes"], s["nbytes"]),
        _MOVED,
        optional=(("streams", 1),),
        of_bytes=True,
    ),
}
