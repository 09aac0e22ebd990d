"""Files of a long-running fabric: its switches' sockets, and its counters."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dataplane.errors import FabricError
from dataplane.fabric.live.settings import FabricSettings
from dataplane.fabric.live.values import FabricCounters


def switch_socket(settings: FabricSettings, switch: str) -> Path:
    """Return the path of a switch's P4Runtime and gNMI socket."""
    return Path(settings.switches) / f"{switch}.sock"


def make_folder(settings: FabricSettings) -> None:
    """Create the sockets' folder if it is missing; raise FabricError."""
    try:
        Path(settings.switches).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FabricError(f"switches: {settings.switches}: {error.strerror or error}") from error


def write_stats(settings: FabricSettings, counters: FabricCounters) -> None:
    """Write the counters atomically: a reader sees the old ones or the new ones; raise FabricError."""
    if settings.stats_file is None:
        return
    path = Path(settings.stats_file)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(counters.encode())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise FabricError(f"stats_file: {path}: {error.strerror}") from error


def read_stats(path: Path) -> FabricCounters:
    """Return the counters that were written last; raise FabricError if there are none."""
    try:
        return FabricCounters.decode(path.read_bytes())
    except OSError as error:
        raise FabricError(f"{path}: {error.strerror}") from error
