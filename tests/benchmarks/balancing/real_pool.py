"""Two real units share one pool: their loops ask, the service moves, quotas follow; one loop is killed.

Each unit is a worker under a quota of CPU time, fed over a link that a token bucket shapes (`real_plant`). API, service
and loops are processes. The quotas of both together are looked at all the time: never more than the pool has.

    sudo .venv/bin/python -m tests.benchmarks.balancing.real_pool
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.resources import Metadata, UnitPool
from controller.apiserver.resources.unit_pool import Claim, UnitHolding, UnitPoolSpec
from tests.benchmarks.balancing.real_plant import PERIOD_US, RealPlant

UNITS: Final = 60
LEAST: Final = 10
LEASE_S: Final = 10.0
RATE_BPS: Final = 20_000_000
CPU_S_PER_MEGABYTE: Final = 0.12
_SETTINGS: Final = """
unit: {name}
bus: {{interface: {{interface: e0, namespace: {namespace}}}}}
load: {{group: {group}}}
levers:
  pool: {{pool: cpus, holder: {name}, api: "unix:api.sock", set: true}}
  cpu_quota: {{group: {group}, low: {least}, period_us: {period_us}, set: true}}
platform: {{}}
interval: 500ms
"""


class Pool:
    """API, service, two units and their loops, in a folder, while the `with` block lasts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._stack = folder, ExitStack()
        self.loops: dict[str, subprocess.Popen[str]] = {}
        self.most, self._is_over = 0.0, threading.Event()

    def __enter__(self) -> Pool:
        with ExitStack() as stack:
            (self.folder / "api.yaml").write_text("storage: {sqlite: api.db}\nlisten: ['unix:api.sock']\n")
            (self.folder / "balance.yaml").write_text("api: unix:api.sock\ninterval_s: 0.5\n")
            for daemon in ("api", "balance"):
                self._start(stack, daemon, "serve", "--settings", f"{daemon}.yaml")
            self.client = stack.enter_context(SyncApiClient(Place(f"unix:{self.folder}/api.sock")))
            self._make_pool()
            self.plants = {
                name: stack.enter_context(RealPlant(RATE_BPS, CPU_S_PER_MEGABYTE, UNITS // 2)) for name in ("a", "b")
            }
            self._levers = [plant.lever(low=1) for plant in self.plants.values()]
            for name, plant in self.plants.items():
                text = _SETTINGS.format(
                    name=name, namespace=plant.upstream, group=plant.group, least=LEAST, period_us=PERIOD_US
                )
                (self.folder / f"{name}.yaml").write_text(text)
                self.loops[name] = self._start(stack, "balance", "drive", "--quiet", "--settings", f"{name}.yaml")
            looking = threading.Thread(target=self._look)
            looking.start()
            stack.callback(looking.join)
            stack.callback(self._is_over.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def shares(self) -> dict[str, int]:
        """Return the units that each has, by the books."""
        return {share.holder: share.units for share in self.client.of(UnitPool).get("cpus").shares}

    def quotas(self) -> dict[str, float]:
        """Return the units that each may use, by its quota."""
        return {name: lever.read().value for name, lever in zip(self.plants, self._levers, strict=True)}

    def _look(self) -> None:
        while not self._is_over.wait(0.05):
            self.most = max(self.most, sum(self.quotas().values()))

    def _make_pool(self) -> None:
        claims = (Claim(holder="a", least=LEAST), Claim(holder="b", least=LEAST))
        spec = UnitPoolSpec(units=UNITS, lease_s=LEASE_S, claims=claims)
        self.client.of(UnitPool).create(UnitPool(metadata=Metadata(name="cpus"), spec=spec))
        halves = tuple(UnitHolding(holder=name, units=UNITS // 2) for name in ("a", "b"))
        self.client.share_units("cpus", halves)

    def _start(self, stack: ExitStack, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "controller.apps.cli", *words]
        root = str(Path(__file__).parents[3])
        process = subprocess.Popen(
            command, cwd=self.folder, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": root}
        )
        assert process.stderr is not None
        stderr = process.stderr
        line = next((text for text in stderr if "ready" in text), "")
        assert line, f"{' '.join(words)} does not start"
        reading = threading.Thread(target=lambda: [print(f"  {text}", end="") for text in stderr])
        reading.start()
        stack.callback(reading.join)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        return process


def main() -> None:
    """Have links change and a loop be killed; print what becomes of shares and quotas."""
    with tempfile.TemporaryDirectory(prefix="mr-pool-") as folder, Pool(Path(folder)) as pool:

        def then(what: str, seconds: float) -> None:
            time.sleep(seconds)
            print(f"{what}, {seconds:g} s later: shares {pool.shares()}, quotas {pool.quotas()}", flush=True)

        then("both links at 20 Mbit/s", 10)
        pool.plants["a"].shape(RATE_BPS // 2)
        then("link of a halved", 10)
        pool.plants["b"].shape(RATE_BPS * 3 // 2)
        then("link of b at 30 Mbit/s", 10)
        pool.loops["a"].kill()
        then("loop of a killed", 0.75 * LEASE_S)
        then("its lease over", 1.25 * LEASE_S)
        print(f"most that both quotas were together: {pool.most:g} of {UNITS} units")
        assert pool.most <= UNITS


if __name__ == "__main__":
    main()
