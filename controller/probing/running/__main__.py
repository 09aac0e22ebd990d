"""`python -m controller.probing.running PROBE.json`: runs a probe task and leaves its result as JSON."""

from __future__ import annotations

import sys
import time

_STARTED_S = time.monotonic()

from controller.probing.running.warming.handing import handed_over  # noqa: E402 - what imports take is of the start


def _run() -> int:
    code = handed_over(sys.argv[1:], _STARTED_S)
    if code is not None:
        return code
    from controller.probing.running.command import main  # noqa: PLC0415 - not where another process runs it

    return main(sys.argv[1:], _STARTED_S)


if __name__ == "__main__":
    sys.exit(_run())
