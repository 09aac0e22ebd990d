"""The output folder of a demo."""

from __future__ import annotations

import os
from pathlib import Path

from dataplane.errors import MillraceError


def make_folder(folder: Path) -> None:
    """Make the output folder before any slow work; raise MillraceError if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise MillraceError(f"--out {folder}: is not a folder") from error
    except OSError as error:
        raise MillraceError(f"--out {folder}: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MillraceError(f"--out {folder}: not writable")
