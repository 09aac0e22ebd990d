"""Tables of values in notebooks, as Jupyter shows them; text of others is always escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dataplane.clock import NS_PER_MS


def table_html(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a caption; None is an empty cell."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_text(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def milliseconds(time_ns: float | None) -> str | None:
    """Return a time in ms, None for None."""
    return None if time_ns is None else f"{time_ns / NS_PER_MS:.3f}"


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)
