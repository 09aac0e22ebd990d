"""The tables of TPC-H at any scale, declared by rows, bytes and types of columns, and its 22 statements.

TPC Benchmark H, standard specification, revision 3: tables and types by clause 1.4, rows and typical lengths of rows by
clause 4.2.5, statements by clause 2.4 with the substitution parameters of their validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller.cluster.operators.sql import SqlTable

STATEMENTS: Final = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("q*.sql"))
}
"""The 22 statements by name, q01 to q22."""

_MONEY: Final = "DECIMAL(15,2)"
_COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "region": {"r_regionkey": "BIGINT", "r_name": "VARCHAR", "r_comment": "VARCHAR"},
    "nation": {"n_nationkey": "BIGINT", "n_name": "VARCHAR", "n_regionkey": "BIGINT", "n_comment": "VARCHAR"},
    "supplier": {
        "s_suppkey": "BIGINT",
        "s_name": "VARCHAR",
        "s_address": "VARCHAR",
        "s_nationkey": "BIGINT",
        "s_phone": "VARCHAR",
        "s_acctbal": _MONEY,
        "s_comment": "VARCHAR",
    },
    "customer": {
        "c_custkey": "BIGINT",
        "c_name": "VARCHAR",
        "c_address": "VARCHAR",
        "c_nationkey": "BIGINT",
        "c_phone": "VARCHAR",
        "c_acctbal": _MONEY,
        "c_mktsegment": "VARCHAR",
        "c_comment": "VARCHAR",
    },
    "part": {
        "p_partkey": "BIGINT",
        "p_name": "VARCHAR",
        "p_mfgr": "VARCHAR",
        "p_brand": "VARCHAR",
        "p_type": "VARCHAR",
        "p_size": "INTEGER",
        "p_container": "VARCHAR",
        "p_retailprice": _MONEY,
        "p_comment": "VARCHAR",
    },
    "partsupp": {
        "ps_partkey": "BIGINT",
        "ps_suppkey": "BIGINT",
        "ps_availqty": "INTEGER",
        "ps_supplycost": _MONEY,
        "ps_comment": "VARCHAR",
    },
    "orders": {
        "o_orderkey": "BIGINT",
        "o_custkey": "BIGINT",
        "o_orderstatus": "VARCHAR",
        "o_totalprice": _MONEY,
        "o_orderdate": "DATE",
        "o_orderpriority": "VARCHAR",
        "o_clerk": "VARCHAR",
        "o_shippriority": "INTEGER",
        "o_comment": "VARCHAR",
    },
    "lineitem": {
        "l_orderkey": "BIGINT",
        "l_partkey": "BIGINT",
        "l_suppkey": "BIGINT",
        "l_linenumber": "INTEGER",
        "l_quantity": _MONEY,
        "l_extendedprice": _MONEY,
        "l_discount": _MONEY,
        "l_tax": _MONEY,
        "l_returnflag": "VARCHAR",
        "l_linestatus": "VARCHAR",
        "l_shipdate": "DATE",
        "l_commitdate": "DATE",
        "l_receiptdate": "DATE",
        "l_shipinstruct": "VARCHAR",
        "l_shipmode": "VARCHAR",
        "l_comment": "VARCHAR",
    },
}
_FIXED: Final = {"region": (5, 124), "nation": (25, 128)}
"""Rows, and bytes of a row, at every scale."""
_SCALED: Final = {
    "supplier": (10_000, 159),
    "customer": (150_000, 179),
    "part": (200_000, 155),
    "partsupp": (800_000, 144),
    "orders": (1_500_000, 104),
    "lineitem": (6_000_000, 112),
}
"""Rows at scale 1, and bytes of a row; lineitem's number of rows is approximate at each scale."""


def tables(scale: float) -> dict[str, SqlTable]:
    """Return the tables at a scale (1: 8,661,245 rows, about 1 GB)."""
    sizes = dict(_FIXED) | {name: (round(rows * scale), width) for name, (rows, width) in _SCALED.items()}
    return {name: SqlTable(rows, rows * width, _COLUMNS[name]) for name, (rows, width) in sizes.items()}
