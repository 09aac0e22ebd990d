"""`python -I -S controller/workloads/nodes/runtimes/reading/__main__.py`, a request as JSON on its standard input.

A separate process, with a deadline, as a file may keep its reader waiting in the kernel indefinitely. It exits with 1
and one line if something is refused. It loads nothing of Millrace but its siblings.
"""

from __future__ import annotations

import json
import os
import resource
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib takes long to load

from beneath import RefusedError, open_at, reopen  # type: ignore[import-not-found]
from copying import Copier  # type: ignore[import-not-found]

_MOST_MEMORY = 1 << 30
_NICE = 5


def main(request: dict[str, object]) -> bytes:
    """Carry out the request and return the answer to write."""
    match request:
        case {"do": "config", "folder": int(folder), "name": str(name), "most": int(most)}:
            descriptor = open_at(folder, name)
            try:
                reading = reopen(descriptor)
            finally:
                os.close(descriptor)
            with open(reading, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib takes long to load  # noqa: PTH123 - a descriptor
                return file.read(most)
        case {"do": "archive", "path": str(path)}:
            _copier(request).archive(path)
        case {"do": "indices", "path": str(path)}:
            _copier(request).indices(path)
        case {"do": "blobs", "path": str(path), "blobs": list(blobs)}:
            _copier(request).blobs(path, blobs)
        case {"do": "measure", "files": list(files), "archive": bool(is_archive), "most": int(most), "entries": int(n)}:
            return _measured(files, most, n, is_archive=is_archive)
        case {"do": "rename", "source": str(source), "target": str(target)}:
            from renaming import NotAnArchiveError, rename  # type: ignore[import-not-found]  # noqa: PLC0415

            try:
                rename(source, target)
            except (NotAnArchiveError, RecursionError) as error:
                raise RefusedError(str(error)) from None
    return b""


def _copier(request: dict[str, object]) -> Copier:
    return Copier(request["folders"], request["target"], request["most"])


def _measured(files: list[str], most_bytes: int, most_entries: int, *, is_archive: bool) -> bytes:
    from measuring import Meter, TooLargeError  # type: ignore[import-not-found]  # noqa: PLC0415 - loads much

    meter = Meter(most_bytes, most_entries)
    try:
        for name in files:
            with open(name, "rb") as file:  # noqa: PTH123 - pathlib takes long to load
                meter.add(file, is_archive=is_archive)
    except TooLargeError as error:
        raise RefusedError(str(error)) from None
    except MemoryError:
        raise RefusedError("has a layer whose headers take too much memory") from None
    return json.dumps([meter.nbytes, meter.entries]).encode()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    os.nice(_NICE)
    try:
        sys.stdout.buffer.write(main(json.load(sys.stdin.buffer)))
    except RefusedError as refused:
        sys.exit(str(refused))
    except OSError as failed:
        sys.exit((failed.strerror or str(failed)).lower())
