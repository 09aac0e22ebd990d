"""A daemon under `millrace up`: `python -m controller.apps.cli.child SUPERVISOR WORDS...` is `millrace WORDS...`.

The kernel kills it (PR_SET_PDEATHSIG, prctl(2)) as soon as the supervisor is dead, even from kill -9. So no daemon
outlives its supervisor, and a new `millrace up` finds the addresses free. The signal is SIGKILL, since the daemon may
hang, and has to survive SIGKILL anyway.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from controller.apps.cli import main

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends; end now if `parent` has already ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    sys.argv[:] = ["millrace", *sys.argv[2:]]
    main()
