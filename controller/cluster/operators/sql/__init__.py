"""Operator graphs of SQL, from DuckDB's query plans; nothing is executed."""

from __future__ import annotations

from controller.cluster.operators.sql.data_files import table_of_file
from controller.cluster.operators.sql.files import load_tables
from controller.cluster.operators.sql.planner import Planned, SqlPlanner, graph_of_sql
from controller.cluster.operators.sql.tables import SqlTable

__all__ = ["Planned", "SqlPlanner", "SqlTable", "graph_of_sql", "load_tables", "table_of_file"]
