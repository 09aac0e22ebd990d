"""Several workers from one process: load PyTorch and the packet engine, which takes seconds, then fork."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess

from dataplane.allreduce import engine

_PR_SET_PDEATHSIG = 1


def fork_workers(ranks: Iterable[int], work: Callable[[int], None]) -> dict[int, BaseProcess]:
    """Run `work(rank)` in one process per rank; they end with this one, however it ends."""
    importlib.import_module("torch._dynamo")  # otherwise optimisers load it at their first step, in each worker
    engine.load()
    forking = multiprocessing.get_context("fork")
    processes = {rank: forking.Process(target=_mortal, args=(work, rank), daemon=True) for rank in ranks}
    for process in processes.values():
        process.start()
    return dict(processes)


def _mortal(work: Callable[[int], None], rank: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    work(rank)
