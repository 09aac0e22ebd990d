"""`python -m controller.schedulers.probe.running PROBE.json`: runs a probe task and leaves its result as JSON."""

from __future__ import annotations

import sys
import time

_STARTED_S = time.monotonic()

from controller.schedulers.probe.running.command import main  # noqa: E402 - what imports take is part of the start

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], _STARTED_S))
