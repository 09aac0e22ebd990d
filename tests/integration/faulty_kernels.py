"""Faulty kernels: one crashes, one hangs, one is wrong; and a correct one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping


class Kernel:
    """A correct kernel."""

    def run(self, inputs: tuple[object, ...]) -> float:
        return 1.0

    def accuracy(self, output: float) -> float:
        return abs(output - 1.0)

    def close(self) -> None:
        pass


class Steady(Kernel):
    """A kernel that takes 20 ms, long compared with the machine's other work."""

    def run(self, inputs: tuple[object, ...]) -> float:
        time.sleep(0.02)
        return 1.0


class Crashing(Kernel):
    def run(self, inputs: tuple[object, ...]) -> float:
        os.abort()


class Hanging(Kernel):
    def run(self, inputs: tuple[object, ...]) -> float:
        time.sleep(600)
        return 1.0


class Wrong(Kernel):
    def run(self, inputs: tuple[object, ...]) -> float:
        return 1.5


class Raising(Kernel):
    def run(self, inputs: tuple[object, ...]) -> float:
        raise ValueError("no such matrix")


def right(sizes: Mapping[str, int], seed: int) -> Kernel:
    return Kernel()


def steady(sizes: Mapping[str, int], seed: int) -> Kernel:
    return Steady()


def crashing(sizes: Mapping[str, int], seed: int) -> Kernel:
    return Crashing()


def hanging(sizes: Mapping[str, int], seed: int) -> Kernel:
    return Hanging()


def wrong(sizes: Mapping[str, int], seed: int) -> Kernel:
    return Wrong()


def raising(sizes: Mapping[str, int], seed: int) -> Kernel:
    return Raising()
