"""Failover time after a controller dies silently: how long a switch trusts it, and when the next one is primary.

- controller_takeover*_s: one that runs alone, and a next one that starts at that moment.
- takeover_s: of a pair (docs/network/standby.md), the longest of sqlite_* and etcd_* below: the active path server or
  controller is killed (SIGKILL), stopped (SIGSTOP), or cut off from etcd, until switches accept what the other one
  wants: of a controller a pin that came meanwhile, of a path server a pin that it is asked for. Four switches, each
  daemon a process; etcd's figures are null without an etcd on the PATH.

Of the first: real daemons' sessions over TCP, and a path between them that stops forwarding with all connections open,
as when a machine loses power or a cable is cut. The next controller starts at that moment: once with the id of the dead
one, whose loss the switch must first detect by its default keepalive, and once with the default id, taken from its
start.

    .venv/bin/python tests/benchmarks/takeover.py
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from controller.common.errors import SessionError
from controller.network.daemon_settings import DaemonSettings
from controller.network.process import connector
from dataplane.clock import VirtualClock
from dataplane.switch.p4runtime import P4RuntimeCore, P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.families import leaf_spine
from tests.benchmarks.parts import Figures
from tests.black_hole import BlackHole
from tests.pairs.takeovers import Failure, running

LIMIT_S = 15.0
"""Maximum time for which a silently dead controller may keep its id."""

_AGAIN_S = 0.1
_TOPOLOGY = leaf_spine(1, 1, 1)


def controller_takeover_s(election_id: int | None = 10) -> float:
    """Return how long after a controller's death the next one is primary; with None each has the id of its start."""
    node = _TOPOLOGY.switches[0]
    core = P4RuntimeCore(Switch(node.node_id, [PortSettings(number) for number in range(1, 5)], VirtualClock()))
    with P4RuntimeServer(core, ["127.0.0.1:0"]) as server, BlackHole(server.ports[0]) as way:
        return asyncio.run(_taken_over(node.name, way, f"127.0.0.1:{server.ports[0]}", election_id))


async def _taken_over(switch: str, way: BlackHole, address: str, election_id: int | None) -> float:
    async with connector(_settings(way.address, election_id), _TOPOLOGY)(switch) as dying:
        await dying.install_pipeline()
        # The switch has just heard of it: the longest time that it can take is from here.
        way.swallow()
        died_s = time.monotonic()
        connect = connector(_settings(address, election_id), _TOPOLOGY)
        while True:
            try:
                async with connect(switch) as living:
                    taken_s = time.monotonic() - died_s
                    await living.install_pipeline()  # only a primary may
                    return taken_s
            except SessionError as error:
                if "already exists" not in str(error):
                    raise
                await asyncio.sleep(_AGAIN_S)


def _settings(address: str, election_id: int | None) -> DaemonSettings:
    addresses = {node.name: address for node in _TOPOLOGY.switches}
    return DaemonSettings(topology="unused", switches=addresses, election_id=election_id)


def pair_takeovers_s(storage: str, rounds: int) -> dict[str, list[float]]:
    """Return the times of takeovers by kind of daemon and failure, each several times."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder, running(Path(folder), storage) as setting:
        for _ in range(rounds):
            for failure in Failure:
                for kind in ("controller", "paths"):
                    if storage == "sqlite" and failure is Failure.PARTITION:
                        continue
                    taken_s = setting.take_over(kind, failure)
                    times.setdefault(f"{storage}_{kind}_{failure}_s", []).append(taken_s)
                    print(f"{storage} {kind} {failure}: {taken_s:.2f} s", file=sys.stderr, flush=True)
                    setting.pairs.until_settled()
                    setting.recover()
                    setting.pairs.until_settled()
        if setting.pairs.stale_writes():
            raise SystemExit(f"switches accepted stale writes: {setting.pairs.stale_writes()}")
    return times


def _pairs(rounds: int) -> dict[str, float | None]:
    """Return the median of each kind of takeover, and the longest of all."""
    storages = ["sqlite", *(["etcd"] if shutil.which("etcd") else [])]
    times = {name: seconds for storage in storages for name, seconds in pair_takeovers_s(storage, rounds).items()}
    figures: dict[str, float | None] = {
        f"{storage}_{kind}_{failure}_s": None
        for storage in ("sqlite", "etcd")
        for kind in ("controller", "paths")
        for failure in Failure
        if storage == "etcd" or failure is not Failure.PARTITION
    }
    figures |= {name: round(median(seconds), 2) for name, seconds in times.items()}
    return {"takeover_s": round(max(max(seconds) for seconds in times.values()), 2), **figures}


def measure(part: str = "", *, quick: bool = False) -> Figures:
    """Return the figures of this benchmark; quick makes pairs fail once in each way instead of three times.

    Part `alone` leaves pairs out.
    """
    return {
        **({} if part == "alone" else _pairs(1 if quick else 3)),
        "controller_takeover_s": round(controller_takeover_s(), 2),
        "controller_takeover_by_newer_id_s": round(controller_takeover_s(None), 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and figures as JSON in the last line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given not in ([], ["--quick"]):
        raise SystemExit(__doc__)
    figures = measure(quick=bool(given))
    table = Table("a controller dies without a word; the next one", "is primary after", title="takeover")
    table.add_row("has its id", f"{figures['controller_takeover_s']:.2f} s (at most {LIMIT_S:g})")
    table.add_row("has the id of its start", f"{figures['controller_takeover_by_newer_id_s']:.3f} s")
    for name, value in figures.items():
        if name.startswith(("sqlite_", "etcd_", "takeover_")):
            table.add_row(
                f"pair: {name.removesuffix('_s').replace('_', ' ')}", "" if value is None else f"{value:.2f} s"
            )
    Console().print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
