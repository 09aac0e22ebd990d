"""Running a probe task from another program: as a separate process, as at a centre, with a deadline."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import controller
from controller.probing import files
from controller.probing.errors import ProbeError
from controller.probing.running.report import Order
from controller.probing.running.results import RunResult, read
from controller.probing.values import ProbeTask
from dataplane.local import programs

MODULE: Final = "controller.probing.running"
_GRACE_S: Final = 30.0
"""Grace beyond the deadline that the runner itself keeps."""


def arguments(probe: Path | str, out: Path | str, order: Order) -> tuple[str, ...]:
    """Return the command line that runs a probe task's file and leaves its result in another."""
    return (
        sys.executable,
        "-m",
        MODULE,
        str(probe),
        *("--units", str(order.units), "--cores", str(order.cores), "--repeat", str(order.repeat)),
        *("--at-least-s", f"{order.at_least_s:g}", "--deadline-s", f"{order.deadline_s:g}", "--out", str(out)),
    )


def run(probe: ProbeTask, order: Order) -> RunResult:
    """Run a probe task here, in the current folder, and return its result; raise ProbeError if it left none."""
    return asyncio.run(_run(probe, order))


async def _run(probe: ProbeTask, order: Order) -> RunResult:
    root = str(Path(controller.__file__).parents[1])
    paths = (root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    with TemporaryDirectory(prefix="millrace-probe-") as folder:
        source, out = Path(folder, "probe.json"), Path(folder, "result.json")
        source.write_text(files.dumps(probe, as_json=True), encoding="utf-8")
        command = arguments(source, out, order)
        try:
            ended = await programs.run(
                command, deadline_s=order.deadline_s + _GRACE_S, doing=probe.name, environment=environment
            )
        except TimeoutError:
            problem = f"{probe.name}: its runner still runs {order.deadline_s + _GRACE_S:g} s after its start"
            raise ProbeError(problem) from None
        if not out.exists():
            lines = ended.said.decode(errors="replace").strip().splitlines()
            raise ProbeError(f"{probe.name}: its runner left no result: {lines[-1] if lines else 'no output'}")
        return read(out)
