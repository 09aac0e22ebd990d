"""Handing a run over to a warm process (`running.warm`), if there is one; runs first, so imports almost nothing."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Final

VARIABLE: Final = "MILLRACE_WARM"
MAX_BYTES: Final = 128 << 10
"""Largest size of command line and environment; with more a runner starts as usual."""
REFUSED: Final = 2
_PATIENCE_S: Final = 5.0
_LOST: Final = 10


def handed_over(arguments: list[str], started_s: float) -> int | None:
    """Return the exit code of the run that a warm process did; None if none took it, and nothing was run."""
    if not (path := os.environ.get(VARIABLE)):
        return None
    order = json.dumps(
        {
            "arguments": arguments,
            "environment": {name: value for name, value in os.environ.items() if name != VARIABLE},
            "folder": os.getcwd(),  # noqa: PTH109 - without pathlib
            "path": sys.path[:8],
            "started_s": started_s,
        }
    ).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            if len(order) > MAX_BYTES:
                return None
            connection.connect(path)
            socket.send_fds(connection, [order], [0, 1, 2])
            if connection.recv(len(b"taken")) != b"taken":
                return None
        except OSError:
            return None
        connection.settimeout(None)  # a run has a deadline of its own
        answer = connection.recv(32)
    if not answer:
        sys.stderr.write("probe: the warm process ended before the run did\n")
        return _LOST
    code = int(json.loads(answer))
    return code if code >= 0 else 128 - code
