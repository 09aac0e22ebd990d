"""The files that p4c writes next to a program's JSON, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

P4INFO_ENDINGS = (".p4info.txtpb", ".p4info.txt", ".p4.p4info.txtpb", ".p4.p4info.txt", ".p4info.json")
"""Endings of P4Infos next to PROGRAM.json: the second pair is what p4lang's tutorials have p4c write."""

ENTRIES_ENDINGS = (".entries.txtpb", ".entries.txt", ".entries.json", ".entries.bin")
"""Endings of entries files next to PROGRAM.json: the formats of p4c's --p4runtime-entries-files."""


def find_p4info(program: Path) -> Path | None:
    """Return the P4Info next to a program's JSON, if there is one."""
    return _find(program, P4INFO_ENDINGS)


def find_entries(program: Path) -> Path | None:
    """Return the entries file next to a program's JSON, if there is one."""
    return _find(program, ENTRIES_ENDINGS)


def _find(program: Path, endings: Sequence[str]) -> Path | None:
    if not program.name:  # a folder: it has no companion files
        return None
    candidates = (program.with_name(program.stem + ending) for ending in endings)
    return next((path for path in candidates if path.is_file()), None)
