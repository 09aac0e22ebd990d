"""A container's first process: unpacks a job's folder, runs the job, and writes its results to standard output.

    python -I -S -c SOURCE FOLDER MOST_BYTES HOLD_S

The folder comes in MILLRACE_JOB_0, MILLRACE_JOB_1 ... and goes back between BEGIN and END: JSON of names and contents
in base64, compressed, in base64. It uses only the standard library: the image needs nothing else.

A container's log disappears with its container, so the container stays until its reader removes it, but no longer than
HOLD_S.
"""

from __future__ import annotations

import base64
import json
import os
import runpy
import signal
import sys
import zlib
from pathlib import Path

BEGIN, END = "-----BEGIN MILLRACE JOB-----", "-----END MILLRACE JOB-----"
PARTS = "MILLRACE_JOB_"
OWN = ".millrace"
CANCELLED = "it was cancelled"
"""Same text as the keeper's."""


def unpack(folder: Path) -> None:
    """Write the files from the environment, and remove them from it."""
    count = int(os.environ.pop(PARTS + "PARTS"))
    text = "".join(os.environ.pop(PARTS + str(number)) for number in range(count))
    for name, content in json.loads(zlib.decompress(base64.b64decode(text))).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = base64.b64decode(content)
        path.write_bytes(data)
        path.chmod(0o700 if data.startswith(b"#!") else 0o600)


def pack(folder: Path, given: dict[str, int], most_bytes: int) -> str:
    """Return the new or changed files, the record of the job's end first, as many as fit."""
    contents, room = {}, most_bytes
    paths = sorted(
        folder.rglob("*"), key=lambda path: (path.name != "ended.json", path.name not in ("stdout", "stderr"))
    )
    for path in paths:
        name = str(path.relative_to(folder))
        own = name.startswith(OWN) and name != OWN + "/ended.json"
        if own or path.is_symlink() or not path.is_file() or given.get(name) == path.stat().st_mtime_ns:
            continue
        size = path.stat().st_size
        if size <= room:
            contents[name] = base64.b64encode(path.read_bytes()).decode()
            room -= size
    return base64.encodebytes(zlib.compress(json.dumps(contents).encode())).decode()


def hold(reason: str, hold_s: float) -> None:
    """Wait to be removed, unless removal ended the job: the keeper has blocked the signals."""
    if reason != CANCELLED:
        signal.sigtimedwait({signal.SIGTERM, signal.SIGINT}, hold_s)


def main(job_folder: str, most_bytes: int, hold_s: float) -> int:
    """Run the job; return its exit code."""
    folder = Path(job_folder)
    folder.mkdir(parents=True, exist_ok=True)
    unpack(folder)
    given = {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    code: int = runpy.run_path(str(folder / OWN / "keeper.py"))["main"](str(folder / OWN))
    sys.stdout.write(f"{BEGIN}\n{pack(folder, given, most_bytes)}{END}\n")
    sys.stdout.flush()
    hold(json.loads((folder / OWN / "ended.json").read_text())["reason"], hold_s)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
