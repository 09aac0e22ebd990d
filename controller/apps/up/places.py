"""The default state folder of `millrace up`; without the modules of settings, for commands that only look there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from controller.apps.up.errors import UpError


def default_state(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the default state folder, in the XDG base directory for state."""
    base = environ.get("XDG_STATE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "millrace" / "up"
    home = environ.get("HOME", "")
    if not home or not Path(home).is_absolute():
        raise UpError("no home folder for the state: give one with --state FOLDER")
    return Path(home) / ".local" / "state" / "millrace" / "up"
