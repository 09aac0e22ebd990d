"""Kinds that work on rows of tables, as in databases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from controller.cluster.operators.counting import Counting, Kind, Sizes


def _comparisons_of_sort(s: Sizes) -> int:
    """ceil(log2(n!)): enough to distinguish all orders of n rows."""
    return math.ceil(math.lgamma(s["rows"] + 1) / math.log(2) - 1e-9)


_ROWS: Final = "one test of each row"

TABLES: Final[Mapping[str, Kind]] = {
    "filter": Kind(
        "the rows of a table that pass a test",
        ("rows", "row_bytes", "kept_rows"),
        lambda s: s["rows"],
        lambda s, _: (s["rows"] * s["row_bytes"], s["kept_rows"] * s["row_bytes"]),
        _ROWS,
        unit="comparison",
        of_bytes=True,
    ),
    "aggregate": Kind(
        "one row for each group of rows, such as a sum",
        ("rows", "row_bytes", "groups", "group_bytes"),
        lambda s: s["rows"],
        lambda s, _: (s["rows"] * s["row_bytes"], s["groups"] * s["group_bytes"]),
        "one update per row",
        unit="update",
        # Columns that are added up, if all are: results of several machines can then be summed up in the network.
        optional=(("sums", 0),),
        of_bytes=True,
    ),
    "join": Kind(
        "pairs of rows of two tables that match; comparisons depend on the algorithm (hash, merge, nested loops)",
        ("left_rows", "left_row_bytes", "right_rows", "right_row_bytes", "out_rows", "out_row_bytes"),
        None,
        lambda s, _: (
            s["left_rows"] * s["left_row_bytes"] + s["right_rows"] * s["right_row_bytes"],
            s["out_rows"] * s["out_row_bytes"],
        ),
        "no count holds for all algorithms",
        unit="comparison",
        of_bytes=True,
    ),
    "sort": Kind(
        "rows in order of a key",
        ("rows", "row_bytes"),
        _comparisons_of_sort,
        lambda s, _: (s["rows"] * s["row_bytes"], s["rows"] * s["row_bytes"]),
        "Knuth, The Art of Computer Programming 3, 5.3.1: log2(n!), for sorting by comparisons only",
        unit="comparison",
        counting=Counting.LOWER_BOUND,
        of_bytes=True,
    ),
    "top-n": Kind(
        "the first rows of a table in order of a key",
        ("rows", "row_bytes", "kept_rows"),
        lambda s: s["rows"],
        lambda s, _: (s["rows"] * s["row_bytes"], s["kept_rows"] * s["row_bytes"]),
        "each row is compared with the last of those kept, at least once",
        unit="comparison",
        counting=Counting.LOWER_BOUND,
        of_bytes=True,
    ),
    "project": Kind(
        "so many new columns, each a formula of a row's others",
        ("rows", "row_bytes", "expressions"),
        lambda s: s["rows"] * s["expressions"],
        lambda s, _: (s["rows"] * s["row_bytes"], s["rows"] * s["row_bytes"]),
        "evaluations of a formula; the operations of each depend on it",
        unit="evaluation",
        of_bytes=True,
    ),
    "table-scan": Kind(
        "the rows of a table or a file, in stored order",
        ("rows", "row_bytes"),
        lambda _: 0,
        lambda s, _: (s["rows"] * s["row_bytes"], s["rows"] * s["row_bytes"]),
        "moves bytes and computes nothing",
        of_bytes=True,
    ),
}
