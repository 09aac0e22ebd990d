"""A worker process: `python -m controller.acceleration.running.process ADDRESS THREADS`.

It reads its secret from standard input, in hexadecimal digits, and exits when standard input ends, so that no worker
outlives its parent. It writes its address to standard output.
"""

from __future__ import annotations

import os
import sys
import threading

from controller.acceleration.running.channels import SECRET_BYTES, Limits, listen
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.serving import Worker
from dataplane.errors import MillraceError

FOR_S = 7 * 86_400.0
"""The longest task; its end ends the worker."""


def main() -> int:
    """Serve until standard input ends; print errors as one line on stderr."""
    address, threads = sys.argv[1], int(sys.argv[2])
    try:
        secret = bytes.fromhex(os.read(0, 2 * SECRET_BYTES).decode("ascii"))
        if len(secret) != SECRET_BYTES:
            raise RunError(f"standard input: a secret of {len(secret)} bytes, not {SECRET_BYTES}")
        limits = Limits()
        with listen(address, limits.connections) as listening:
            stop = threading.Event()
            threading.Thread(target=_watch, args=(stop,), daemon=True).start()
            sys.stdout.write(f"{name_of(address, listening.getsockname())}\n")
            sys.stdout.flush()
            Worker(secret, limits, threads).serve(listening, stop, FOR_S)
    except (MillraceError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def name_of(address: str, bound: object) -> str:
    """Return a worker's listening address, with the real port in place of 0."""
    return address if isinstance(bound, str) else f"{address.rpartition(':')[0]}:{bound[1]}"  # type: ignore[index]


def _watch(stop: threading.Event) -> None:
    while os.read(0, 1024):
        continue
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
