"""Requests to the process that reads users' files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.workloads.nodes.runtimes.errors import ContainerError, RuntimeAwayError, RuntimeTimeoutError
from controller.workloads.nodes.runtimes.processes import child_environment, one_line
from dataplane.local import programs

_PROGRAM: Final = Path(__file__).parent / "__main__.py"


class ReadRefusedError(ContainerError):
    """A file is invalid, or in a forbidden place: one phrase, to follow its name."""


async def ask(doing: str, deadline_s: float, request: dict[str, object], *, descriptors: Sequence[int] = ()) -> bytes:
    """Return the process's answer; raise ReadRefusedError, or RuntimeTimeoutError after the deadline."""
    command = (sys.executable, "-I", "-S", str(_PROGRAM))
    try:
        ended = await programs.run(
            command,
            deadline_s=deadline_s,
            doing=doing,
            environment=child_environment(),
            sent=json.dumps(request).encode(),
            pass_fds=descriptors,
        )
    except TimeoutError as error:  # an OSError, too
        raise RuntimeTimeoutError("reader", doing, deadline_s) from error
    except OSError as error:
        raise RuntimeAwayError(f"reader: {doing}: it cannot be started: {(error.strerror or '').lower()}") from error
    if ended.exit_code:
        last = ended.said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ReadRefusedError(one_line(last) or "cannot be read")
    return ended.output
