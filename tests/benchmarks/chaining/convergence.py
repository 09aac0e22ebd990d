"""Time for a controller to fill all switches of a topology, which are sinks (sinks.py) in a process of their own.

From the start of `millrace controller` until it logs the last switch as reconciled, and until its status
says that all is settled: nothing left to write. CPU time and memory are the controller's. Then it is started again on
the same switches, and must write nothing.

    .venv/bin/python tests/benchmarks/chaining/convergence.py fat-tree:k=12
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[3]))  # tests import each other by their full names

from controller.common.errors import ControllerError
from controller.network.status.service import ControllerClient, ControllerClientSettings
from dataplane.topology.file import load_topology
from tests.benchmarks.chaining.sinks import SinkProcess, sinks
from tests.benchmarks.parts import Figures

_MILLRACE = Path(sys.executable).parent / "millrace"
_LIMIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Convergence:
    """The cost of filling a fabric."""

    switches: int
    updates: int
    pipelines: int
    """Programs sent; as many as switches, unless some were sent again."""
    ready_s: float
    """Until the controller's ready line."""
    reconciled_s: float
    settled_s: float
    cpu_s: float
    peak_mib: float
    problems: int
    """Warnings that it logged."""
    sinks_cpu_s: float
    """CPU time of the sinks so far, on the same processors."""


def converge(topology: str, limit_s: float = _LIMIT_S, log: Path | None = None) -> tuple[Convergence, Convergence]:
    """Return what it costs to fill a topology's switches, and to find them filled after a restart.

    Raises TimeoutError when that is not done in time.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-") as name, sinks(topology, Path(name) / "s") as switches:
        folder = Path(name)
        (folder / "c.toml").write_text(
            f'topology = "{topology}"\nswitches = "{switches.switches}"\nlisten = "unix:{folder}/status"\n'
        )
        first = _serve(switches, topology, log or folder / "log", folder, limit_s)
        second = _serve(switches, topology, folder / "log-of-restart", folder, limit_s)
        return first, second


def _serve(switches: SinkProcess, topology: str, log: Path, folder: Path, limit_s: float) -> Convergence:
    """Run a controller until all is settled."""
    before = len(switches.arrivals())
    with log.open("w", encoding="utf-8") as output:
        command = [str(_MILLRACE), "controller", "serve", "--settings", str(folder / "c.toml")]
        begin_s = time.monotonic()
        with subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                return asyncio.run(_watch(process, switches, before, topology, log, folder, begin_s, limit_s))
            finally:
                process.send_signal(signal.SIGTERM)


async def _watch(
    process: subprocess.Popen[bytes],
    switches: SinkProcess,
    before: int,
    topology: str,
    log: Path,
    folder: Path,
    begin_s: float,
    limit_s: float,
) -> Convergence:
    count, ready_s, reconciled_s = len(load_topology(topology).switches), 0.0, 0.0
    while True:
        await asyncio.sleep(0.1)
        now_s = time.monotonic() - begin_s
        text = log.read_text(encoding="utf-8")
        if process.poll() is not None or now_s > limit_s:
            raise TimeoutError(f"not settled after {now_s:.0f} s: {text[-2000:]}")
        if not ready_s and "controlling " in text:
            ready_s = now_s
        named = {line.split()[-5] for line in text.splitlines() if ": reconciled, " in line}
        if len(named) < count:
            continue
        reconciled_s = reconciled_s or now_s
        if await _is_settled(folder):
            break
    arrivals = switches.arrivals()[before:]
    return Convergence(
        count,
        sum(arrival.updates for arrival in arrivals),
        sum(not arrival.updates for arrival in arrivals),
        ready_s,
        reconciled_s,
        time.monotonic() - begin_s,
        _cpu_s(process.pid),
        _peak_mib(process.pid),
        text.count("WARNING"),
        _cpu_s(switches.pid),
    )


async def _is_settled(folder: Path) -> bool:
    with suppress(ControllerError):
        async with ControllerClient(ControllerClientSettings(address=f"unix:{folder}/status")) as client:
            return (await client.status()).settled
    return False


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(*, quick: bool = False) -> Figures:
    """Return the figures of this benchmark; quick is a smaller fabric."""
    convergence, _ = converge("fat-tree:k=4" if quick else "fat-tree:k=12")
    return {
        "controller_180_s": None if quick else round(convergence.reconciled_s, 2),
        "controller_180_cpu_s": None if quick else round(convergence.cpu_s, 2),
        "controller_180_peak_mib": None if quick else round(convergence.peak_mib),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topologies", nargs="*", default=["fat-tree:k=12"])
    parser.add_argument("--limit-s", type=float, default=_LIMIT_S)
    parser.add_argument("--log", type=Path, help="where the controller's log goes")
    given = parser.parse_args(arguments)
    columns = "topology", "start", "switches", "updates", "pipelines", "ready", "reconciled", "settled", "CPU", "peak"
    table, figures = Table(*columns, "warnings", "sinks' CPU", title="convergence of a controller"), {}
    for topology in given.topologies:
        first, second = converge(topology, given.limit_s, given.log)
        for which, convergence in (("first", first), ("again", second)):
            times = convergence.ready_s, convergence.reconciled_s, convergence.settled_s, convergence.cpu_s
            counts = (str(value) for value in (convergence.switches, convergence.updates, convergence.pipelines))
            more = f"{convergence.peak_mib:.0f} MiB", str(convergence.problems), f"{convergence.sinks_cpu_s:.1f} s"
            table.add_row(topology, which, *counts, *(f"{value:.1f} s" for value in times), *more)
        figures[f"controller_{first.switches}_s"] = round(first.reconciled_s, 2)
        figures[f"controller_{first.switches}_cpu_s"] = round(first.cpu_s, 2)
        figures[f"controller_{first.switches}_peak_mib"] = round(first.peak_mib)
        figures[f"controller_{first.switches}_restart_s"] = round(second.reconciled_s, 2)
        figures[f"controller_{first.switches}_restart_updates"] = second.updates
    if len(given.topologies) == 1:
        figures["controller_converge_s"] = round(first.reconciled_s, 2)
    Console(width=160).print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
