"""Files in the run folder that daemons of `millrace up` leave behind, above all those that were killed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.apps.up.control import SOCKET

STATS: Final = "fabric.json"
SWITCHES: Final = "switches"
NAMESPACES: Final = "namespaces"
_DAEMONS: Final = ("api", "collector", "controller", "jobs", "paths")
_PATIENCE_S: Final = 1.0


def remove_remains(run: Path) -> list[Path]:
    """Remove what our daemons leave in a run folder, which others may share; return what was removed.

    Sockets at which somebody listens stay, and with them what their daemon writes.
    """
    removed = [path for path in _dead_sockets(run) if _unlinked(path)]
    switches, namespaces = run / SWITCHES, run / NAMESPACES
    if not any(switches.glob("*.sock")):
        removed += [path for path in (run / STATS, *run.glob(f".{STATS}.*")) if _unlinked(path)]
        removed += [link for link in sorted(namespaces.glob("*")) if link.is_symlink() and _unlinked(link)]
    for folder in (switches, namespaces):
        with suppress(OSError):  # there is none, or it still has something
            folder.rmdir()
    return removed


def is_dead(path: Path) -> bool:
    """Return whether there is a socket, or a link to one, at which nobody listens."""
    with socket.socket(socket.AF_UNIX) as opened:
        opened.settimeout(_PATIENCE_S)
        try:
            opened.connect(str(path))
        except ConnectionRefusedError:
            return True
        except FileNotFoundError:
            return path.is_symlink()
        except OSError:
            return False  # busy, or no socket
    return False


def _dead_sockets(run: Path) -> Iterator[Path]:
    ours = (run / SOCKET, *(run / f"{daemon}.sock" for daemon in _DAEMONS))
    yield from filter(is_dead, (*ours, *sorted((run / SWITCHES).glob("*.sock"))))


def _unlinked(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
