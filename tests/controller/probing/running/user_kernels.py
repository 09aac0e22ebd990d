"""Kernels like users' ones, good and bad; entry points for the tests in this folder."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np


class Numbered:
    """Its outputs are its seed, its inputs and its number of runs, so that means can be checked."""

    def __init__(self, sizes: Mapping[str, int], seed: int) -> None:
        self._shape, self._seed, self._runs = (sizes["n"],) if sizes.get("n") else (), seed, 0

    def run(self, inputs: tuple[Any, ...]) -> Any:
        self._runs += 1
        return np.full(self._shape, self._seed + 0.1 * self._runs + sum(float(np.mean(array)) for array in inputs))

    def accuracy(self, output: Any) -> float:
        return 0.0


class Sum:
    """The sum of n numbers, 0 to n - 1 and what its seed adds; leaves a line in a file for each process."""

    def __init__(self, sizes: Mapping[str, int], seed: int) -> None:
        self._numbers = np.arange(sizes["n"], dtype=np.float64)
        if folder := os.environ.get("TEST_FOLDER"):
            cores = sorted(os.sched_getaffinity(0))
            Path(folder, str(os.getpid())).write_text(f"{sizes['n']} {cores}")

    def run(self, inputs: tuple[Any, ...]) -> Any:
        print("kernels may print")
        return self._numbers * 2

    def accuracy(self, output: Any) -> float:
        return float(np.abs(output - 2 * self._numbers).max())


class Bad:
    """Behaves as its name says when run."""

    def __init__(self, what: str) -> None:
        self._what = what

    def run(self, inputs: tuple[Any, ...]) -> float:
        match self._what:
            case "raise":
                raise ValueError("no such thing\nand more")
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "leave":
                sys.exit(4)
            case "hang":
                time.sleep(600)
            case "memory":
                return float(np.ones(1 << 50)[0])
        return 0.0

    def accuracy(self, output: float) -> float:
        return {"wrong": 0.5, "nan": float("nan")}.get(self._what, 0.0)


def numbered(sizes: Mapping[str, int], seed: int) -> Numbered:
    return Numbered(sizes, seed)


def total(sizes: Mapping[str, int], seed: int) -> Sum:
    return Sum(sizes, seed)


def _bad(what: str) -> Any:
    return lambda sizes, seed: Bad(what)


bad_raise, bad_segfault, bad_kill, bad_exit = (_bad(what) for what in ("raise", "segfault", "kill", "exit"))
bad_leave, bad_hang, bad_memory, bad_wrong = (_bad(what) for what in ("leave", "hang", "memory", "wrong"))
bad_nan = _bad("nan")


def bad_make(sizes: Mapping[str, int], seed: int) -> NoReturn:
    raise RuntimeError("cannot be made")
