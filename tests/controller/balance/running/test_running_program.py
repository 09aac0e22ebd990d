"""Concurrency and precision of a real running program, moved by the loop of `millrace balance drive`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from controller.balance.rules.history import read_history
from controller.balance.running.loop import Tick
from controller.balance.running.process import drive
from controller.balance.running.settings import RunSettings
from controller.balance.values import Precision
from dataplane.config import loads
from dataplane.errors import ConfigError
from tests.waiting import until

WORKER, ROOT = Path(__file__).with_name("worker.py"), Path(__file__).parents[4]
SETTINGS = """
unit: u0
bus: {program: {}}
load: {program: {}}
levers: {program: {socket: SOCKET, set: true}}
table:
  levers: [concurrency, precision]
  guarded: false
  table:
    rows:
    - {interval: "[-1, -0.5)", concurrency: 1, precision_steps: -1}
    - {interval: "[-0.5, 0.5]"}
    - {interval: "(0.5, 1]", concurrency: -1, precision_steps: 1}
interval: 100ms
silence: {stale: 30s, release: 60s}
rest: 100ms
record: RECORD
"""


async def driven(folder: Path) -> tuple[list[str], list[Tick], dict[str, Any]]:
    """Drive a worker up, then down; return the loop's ready lines and turns, and what the worker has seen."""
    path, slow = folder / "u0.sock", folder / "slow"
    ready, ticks = list[str](), list[Tick]()
    text = SETTINGS.replace("SOCKET", str(path)).replace("RECORD", str(folder / "record.csv"))
    settings = loads(text, RunSettings)
    loop = asyncio.ensure_future(drive(settings, ready.append, ticks.append))
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, str(WORKER), str(path), str(slow)),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:

        def is_at(precision: Precision, concurrency: int) -> bool:
            state = ticks[-1].state if ticks else None
            return state is not None and (state.precision, state.concurrency) == (precision, concurrency)

        used = folder / "int8"
        await until(lambda: (is_at(Precision.INT8, 4) and used.exists()) or loop.done(), lambda: ticks[-1:])
        slow.touch()
        await until(lambda: is_at(Precision.FP32, 1) or loop.done(), lambda: ticks[-1:])
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
    finally:
        loop.cancel()
        output, _ = await program.communicate(b"")  # ends its input
    return ready, ticks, json.loads(output)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_item_16_concurrency_and_precision_of_a_running_program(tmp_path: Path) -> None:
    ready, ticks, seen = asyncio.run(driven(tmp_path))
    assert "; ".join(ready).split("; ") == [
        "unit u0",
        "precision of the program of u0: precision at 0 of 0 to 0, read-only: no program has connected",
        "concurrency of the program of u0: concurrency at 1 of 1 to 1, read-only: no program has connected",
        "unit u0: lever program of u0: no program has connected",
    ]
    types = {
        "fp32": ["torch.nn.modules.linear.Linear", "float32", "float32"],
        "bf16": ["torch.nn.modules.linear.Linear", "bfloat16", "bfloat16"],  # unless it was passed in a busy moment
        "int8": ["torch.ao.nn.quantized.dynamic.modules.linear.Linear", "qint8", "float32"],
    }
    assert {"fp32", "int8"} <= seen["types"].keys()
    assert seen["types"].items() <= types.items()
    assert max(seen["most"].values()) > 1
    assert seen["at"] == ["fp32", 2]  # the loop's release has restored both
    samples = [tick.sample for tick in ticks if tick.sample is not None]
    assert max(sample.load for sample in samples) > 0.5
    assert max(sample.bus for sample in samples) > 0.5
    records = read_history(tmp_path / "record.csv")
    states = [tick.before for tick in ticks if tick.sample is not None]
    assert [record.state.concurrency for record in records] == [state.concurrency for state in states]
    assert [record.state.precision for record in records] == [state.precision for state in states]


def test_meters_by_the_program_need_its_socket() -> None:
    with pytest.raises(ConfigError, match="bus or load by the program needs `levers"):
        loads(SETTINGS.replace("{program: {socket: SOCKET, set: true}}", "{}"), RunSettings)
