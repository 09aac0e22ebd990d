"""A process that writes to the storage is killed at random moments, again and again; nothing acknowledged may be lost.

Each of several writers adds numbered keys and counts up one key that all share, by compare-and-swap, and says each
write once it is acknowledged. After each death the file is opened: every acknowledged write is there, once, and the
count is the number of writes that were made, of which at most one a writer was not acknowledged.

Usage: python -m tests.soak.storage [--kills N] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from controller.apiserver.storage import Expected, Put
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.common.errors import ConflictError

WRITERS = 4
_COUNT = "/count"


@dataclass(slots=True)
class Report:
    """Result of the soak; `problems` is empty on success."""

    kills: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    """Writes made whose writer died before it could report them."""
    problems: list[str] = field(default_factory=list)


def soak(kills: int, seed: int) -> Report:
    """Kill a writing process this many times, after up to a fifth of a second each."""
    rng, report = random.Random(seed), Report()
    acknowledged: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="storage") as folder:
        path = str(Path(folder) / "storage")
        for life in range(kills):
            acknowledged |= _live(path, life, rng.uniform(0.005, 0.2))
            report.kills += 1
            report.problems += asyncio.run(_check(path, acknowledged, report, WRITERS * (life + 1)))
            if report.problems:
                break
    report.acknowledged = len(acknowledged)
    return report


def _live(path: str, life: int, seconds: float) -> set[str]:
    """Let a process write, kill it after this long, and return its output."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            asyncio.run(_write(path, life, writing))
        finally:
            os._exit(1)
    os.close(writing)
    try:
        output = os.read(reading, 65536)  # the first write
        time.sleep(seconds)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as rest:
        lines = (output + rest.read()).decode().split("\n")
    return set(lines[:-1])  # anything after the last newline is incomplete


async def _write(path: str, life: int, writing: int) -> None:
    async with await SqliteStorage.open(path) as storage:
        await asyncio.gather(*(_count_up(storage, f"/writes/{life}-{writer}", writing) for writer in range(WRITERS)))


async def _count_up(storage: SqliteStorage, name: str, writing: int) -> None:
    number = 0
    while True:
        stored = await storage.get(_COUNT)
        count, revision = (0, 0) if stored is None else (int(stored.value), stored.modified)
        key = f"{name}-{number}"
        try:
            await storage.transact(
                (Put(_COUNT, b"%d" % (count + 1)), Put(key, b"")), expected=(Expected(_COUNT, revision),)
            )
        except ConflictError:
            continue
        os.write(writing, f"{key}\n".encode())
        number += 1


async def _check(path: str, acknowledged: set[str], report: Report, most: int) -> list[str]:
    async with await SqliteStorage.open(path) as storage:
        contents = {item.key: item for item in (await storage.scan("/writes/")).items}
        stored = await storage.get(_COUNT)
    problems = [f"{key} was acknowledged and is lost" for key in acknowledged - contents.keys()]
    problems += [f"{key} was written {item.version} times" for key, item in contents.items() if item.version != 1]
    count = 0 if stored is None else int(stored.value)
    if count != len(contents):
        problems.append(f"the count is {count} after {len(contents)} writes")
    report.unacknowledged = len(contents) - len(acknowledged)
    if report.unacknowledged > most:
        problems.append(f"{report.unacknowledged} writes were made that nobody was told of")
    return problems


def main(argv: list[str]) -> int:
    """Print the report as one line of JSON; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    report = soak(options.kills, options.seed)
    print(json.dumps(asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
