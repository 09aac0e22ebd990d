"""A job's folder as text: into a container by its environment, out of it by its log; boot.py is the other end."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from controller.workloads.centres.engines.jobs.folders import ENDED_FILE, OWN
from controller.workloads.centres.errors import EngineError, OrderError

_BEGIN: Final = b"-----BEGIN MILLRACE JOB-----"
_END: Final = b"-----END MILLRACE JOB-----"
_PART: Final = 60_000
"""Characters of one variable: the API server accepts a few more."""
_MOST_PARTS: Final = 12
_MOST_FILES: Final = 4096
_MOST_EXPANSION: Final = 8
"""Size of results as base64 in JSON, compressed and in base64 again, at most, as a multiple of their limit."""


def environment_of(folder: Path, task: str) -> dict[str, str]:
    """Return a folder's files as variables; raise OrderError if they are too large."""
    files = {
        str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = base64.b64encode(zlib.compress(json.dumps(files).encode(), 9)).decode()
    parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
    if len(parts) > _MOST_PARTS:
        most = _MOST_PARTS * _PART
        raise OrderError("containers", f"task {task}: its files are {len(text)} bytes when packed, at most {most} fit")
    return {f"MILLRACE_JOB_{number}": part for number, part in enumerate(parts)} | {
        "MILLRACE_JOB_PARTS": str(len(parts))
    }


def is_whole(log: bytes) -> bool:
    """Return whether a log ends with a job's complete results."""
    return _END in log


def files_in(log: bytes, most_bytes: int) -> Mapping[str, bytes] | None:
    """Return the files in a log; None for a log without any. Names are checked, sizes bounded."""
    _, begin, rest = log.rpartition(_BEGIN)
    text, end, _ = rest.partition(_END)
    if not begin or not end:
        return None
    try:
        expander = zlib.decompressobj()
        packed = expander.decompress(base64.b64decode(text), most_bytes * _MOST_EXPANSION + (1 << 16))
        if not expander.eof:
            raise EngineError("containers", f"a job has left more than {most_bytes} bytes")
        told = json.loads(packed)
        if len(told) > _MOST_FILES:
            raise EngineError("containers", f"a job has left {len(told)} files, at most {_MOST_FILES} are kept")
        return {name: base64.b64decode(content) for name, content in told.items() if _is_inside(name)}
    except (ValueError, zlib.error, AttributeError, TypeError, RecursionError) as error:
        raise EngineError("containers", f"what a job has left cannot be unpacked: {error}") from error


def _is_inside(name: str) -> bool:
    """Return whether a name stays below a job's folder; raise ValueError for an invalid file name."""
    os.fsencode(name)
    parts = PurePosixPath(name).parts
    is_own = parts[:1] == (OWN,) and parts != (OWN, ENDED_FILE)
    return bool(parts) and not name.startswith("/") and ".." not in parts and not is_own and "\0" not in name
