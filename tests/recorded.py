"""Recorded trees of /proc and /sys for tests: what files say, as they were on real machines, or as documented."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_tree(folder: Path, files: Mapping[str, str], links: Mapping[str, str] | None = None) -> Path:
    """Write files and symbolic links below a folder, overwriting existing ones; return the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, target in (links or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    return folder
