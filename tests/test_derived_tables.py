"""The tables that repeat a declaration are what `make tables` writes."""

from __future__ import annotations

import re

import pytest

from tests.derived_tables import ROOT, TABLES, DerivedTable


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.path)
def test_tables_match_their_declaration(table: DerivedTable) -> None:
    content = (ROOT / table.path).read_text(encoding="utf-8")
    assert table.updated(content) == content, "run `make tables`"


def test_a_missing_table_is_an_error() -> None:
    table = DerivedTable("page.md", r"^(?P<table>x\n)", lambda: "y\n")
    assert table.updated("a\nx\nb\n") == "a\ny\nb\n"
    with pytest.raises(ValueError, match=re.escape("page.md: 0 places match")):
        table.updated("a\n")
