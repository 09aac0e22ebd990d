"""Time until two switches detect a dead link or neighbour, and false alarms on a busy machine.

Two `millrace switch` processes on a veth cable exchange hellos (50 ms, three times). Each round drops everything one
way, sets a device down, stops a switch and lets it continue, kills one, and ends one of another pair (SIGTERM); the
time runs from the command to the line in the log. Then twice as many processes as cores keep every core busy for a
while: a switch that gives its neighbour up then is wrong.

Usage: sudo python tests/benchmarks/liveness.py [--rounds N] [--busy-s S] [--driver native|python]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from tests.dataplane.switch.hellos.linked import End, Linked

DRIVERS = {"native": (), "python": ("--pipeline", "interpreter")}
LOST = "the neighbour is lost"
HOGS_PER_CORE = 2


def main(argv: Sequence[str]) -> None:
    """Measure and print; the last line is JSON, milliseconds and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--busy-s", type=float, default=60.0)
    parser.add_argument("--driver", choices=DRIVERS, default="native")
    options = parser.parse_args(argv)
    times_ms: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for measure in (measure_round, measure_end):
            with tempfile.TemporaryDirectory() as folder, Linked(Path(folder), DRIVERS[options.driver]) as linked:
                for name, found_ms in measure(linked).items():
                    times_ms.setdefault(name, []).append(found_ms)
        print(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.0f} ms" for name, values in times_ms.items()))
    figures: dict[str, float | int] = {}
    for name, values in times_ms.items():
        figures |= {f"{name}_ms": round(median(values), 1), f"{name}_worst_ms": round(max(values), 1)}
    figures |= {"busy_s": options.busy_s, "false_losses": count_false_losses(options.busy_s, DRIVERS[options.driver])}
    print(json.dumps(figures))


def measure_round(linked: Linked) -> dict[str, float]:
    """Return the milliseconds until the first and the second end detected the fault."""
    a, b = linked.a, linked.b
    linked.say_hello()
    figures: dict[str, float] = {}
    done = time.time()
    with linked.dropping("b1"):
        figures["one_way_receiver"] = until(b, LOST, done)
        figures["one_way_sender"] = until(a, LOST, done)
    linked.met()
    figures["link_down_own"], figures["link_down_other"] = after(lambda: linked.set_up("a1", is_up=False), linked)
    for end in (a, b):
        end.wait_for_line(LOST)
    linked.set_up("a1", is_up=True)
    linked.met()
    done = time.time()
    b.signal(signal.SIGSTOP)
    figures["stopped"] = until(a, LOST, done)
    b.signal(signal.SIGCONT)
    linked.met()
    done = time.time()
    b.signal(signal.SIGKILL)
    figures["killed"] = until(a, LOST, done)
    return figures


def measure_end(linked: Linked) -> dict[str, float]:
    """Return the time, in milliseconds, until an end knew that the other one was stopping."""
    linked.say_hello()
    done = time.time()
    linked.b.signal(signal.SIGTERM)
    return {"ended": until(linked.a, LOST, done)}


def after(do: Callable[[], None], linked: Linked) -> tuple[float, float]:
    """Return how long after the start of a command each end logged that its port is down."""
    done = time.time()
    do()
    return until(linked.a, "is down", done), until(linked.b, "is down", done)


def until(end: End, words: str, since_s: float) -> float:
    """Return the milliseconds from a time to the line with these words."""
    return (end.wait_for_line(words) - since_s) * 1000


def count_false_losses(busy_s: float, driver: tuple[str, ...]) -> int:
    """Return how often one of two healthy neighbours was declared lost while every core was busy."""
    with tempfile.TemporaryDirectory() as folder, Linked(Path(folder), driver) as linked:
        linked.say_hello()
        hogs = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(HOGS_PER_CORE * (os.cpu_count() or 1))
        ]
        try:
            time.sleep(busy_s)
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()
        return sum(end.count(LOST) for end in (linked.a, linked.b))


if __name__ == "__main__":
    main(sys.argv[1:])
