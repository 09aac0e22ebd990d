"""Failover time after a controller dies silently: how long a switch trusts it, and when the next one is primary.

Real daemons' sessions over TCP, and a path between them that stops forwarding with all connections open, as when a
machine loses power or a cable is cut. The next controller starts at that moment: once with the id of the dead one,
whose loss the switch must first detect by its default keepalive, and once with the default id, taken from its start.

    .venv/bin/python tests/benchmarks/takeover.py
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

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


def measure(*, quick: bool = False) -> Figures:
    """Return the figures of this benchmark; quick is how it is anyway."""
    del quick
    return {
        "controller_takeover_s": round(controller_takeover_s(), 2),
        "controller_takeover_by_newer_id_s": round(controller_takeover_s(None), 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and figures as JSON in the last line."""
    if arguments or sys.argv[1:]:
        raise SystemExit(__doc__)
    figures = measure()
    table = Table("a controller dies without a word; the next one", "is primary after", title="takeover")
    table.add_row("has its id", f"{figures['controller_takeover_s']:.2f} s (at most {LIMIT_S:g})")
    table.add_row("has the id of its start", f"{figures['controller_takeover_by_newer_id_s']:.3f} s")
    Console().print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
