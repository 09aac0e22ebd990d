"""A scheduler as a process of its own, which can be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


async def start(settings: Path) -> asyncio.subprocess.Process:
    """Start a scheduler process; return it once it is ready."""
    command = (sys.executable, "-m", "controller.apps.cli", "scheduler", "serve", "--settings", str(settings))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    while not (line := await process.stderr.readline()).startswith(b"millrace scheduler: ready: "):
        assert line, "the scheduler ended"
    # Drain the log, or it would fill the pipe.
    process.drain = asyncio.create_task(process.stderr.read())  # type: ignore[attr-defined]
    return process
