"""Kernels first used by several threads at once: compiled once, and alive as long as they may be called."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dataplane.native import kernel, kernel_library, u64
from tests.waiting import HANG_S

THREADS = 8

# A new process has nothing compiled or loaded: its first pushes come from several threads at once.
PUSHES = """
import threading
from dataplane.clock import VirtualClock
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import Switch
from dataplane.switch.traffic import PortSettings
from tests.dataplane.switch.compiled.queued_bench import own_program

clock, program = VirtualClock(), own_program("stateful")
ports = [PortSettings(1), PortSettings(2)]
switches = [Switch(number, ports, clock, pipeline_factory=compiled_pipeline) for number in range(6)]
together = threading.Barrier(len(switches))

def push(switch):
    together.wait()
    for _ in range(20):
        switch.commit(program)

threads = [threading.Thread(target=push, args=(switch,)) for switch in switches]
for thread in threads:
    thread.start()
sent = 0
while any(thread.is_alive() for thread in threads) or sent == 0:
    clock.advance_to(clock.time_ns + 1_000_000)
    for switch in switches:
        switch.receive(1, [bytes(60)] * 4)
        sent += len(switch.advance(clock.time_ns))
print("all pushed")
"""


def test_threads_that_ask_first_get_the_same_library() -> None:
    @kernel
    def add(left: u64, right: u64) -> u64:
        """Return the sum."""
        return left + right

    together = threading.Barrier(THREADS)

    def ask(_: int) -> object:
        together.wait()
        return kernel_library(add)

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(ask, range(THREADS)))
    assert all(library is answers[0] for library in answers)
    assert kernel_library(add).bind(add)(2, 3) == 5


def test_first_pushes_from_several_threads_while_another_steps() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PUSHES],
        cwd=root, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all pushed\n"
