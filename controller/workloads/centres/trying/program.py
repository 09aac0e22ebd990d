"""Run each kernel in a separate process: `python -m [this module] CORES DEADLINE_S NAME...`.

NAME.json is a probe task of one kernel, NAME.out its result. Libraries are loaded once and shared by forks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from controller.probing.running.command import main as run_probe


def main(cores: str, deadline_s: str, names: Sequence[str]) -> int:
    """Try all kernels; each result has its own file, so that a failure does not affect the rest."""
    for name in names:
        child = os.fork()
        if child == 0:
            words = [f"{name}.json", "--units", "1", "--cores", cores, "--repeat", "1", "--at-least-s", "0"]
            code = run_probe([*words, "--deadline-s", deadline_s, "--out", f"{name}.out"], time.monotonic())
            os._exit(code)
        os.waitpid(child, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
