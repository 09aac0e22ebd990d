"""Several workers from one process: it loads PyTorch and the packet engine, which takes seconds, and then forks."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from dataplane.allreduce import engine


def run_forked(workers: int, folder: Path, work: Callable[[int], None]) -> int:
    """Run `work(rank)` in a process each and return how many failed; what they say is in FOLDER/RANK.errors.

    Workers end without any ado: a group whose members have gone cannot be left in an orderly way.
    """
    importlib.import_module("torch._dynamo")  # which optimisers load at their first step otherwise, in each worker
    engine._library()
    started = [_fork(rank, folder, work) for rank in range(workers)]
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in started)


def _fork(rank: int, folder: Path, work: Callable[[int], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with (folder / f"{rank}.errors").open("w") as errors:
            os.dup2(errors.fileno(), sys.stderr.fileno())
        work(rank)
        status = 0
    except BaseException:  # noqa: BLE001 - this process ends here, whatever it was
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
