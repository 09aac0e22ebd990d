"""The command line of soaks that kill daemons at random moments."""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Report(Protocol):
    """Result of a soak; `problems` is empty on success."""

    problems: list[str]


class Soak(Protocol):
    """One run in a folder."""

    def run(self, kills: int, pause_s: float) -> Report:
        """Kill this many times, after pauses of this mean length, let everything settle, and check."""
        ...


def main(description: str | None, soak: Callable[[Path, random.Random], Soak]) -> int:
    """Run the soak of the command line in a fresh folder; return 1 if there were problems."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mr-soak-") as folder:
        report = soak(Path(folder), random.Random(options.seed)).run(options.kills, options.pause_s)
    print(report)
    return 1 if report.problems else 0
