"""CPU time as units of a pool: real quotas follow the work from one control group to the other, through the pool.

API server, service of pools and a loop for each of two units are processes, as users run them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.resources import Metadata, UnitPool
from controller.apiserver.resources.unit_pool import Claim, UnitPoolSpec
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.balance.levers.settings import LeverSettings, PoolLever, QuotaLever
from controller.balance.rules import PlatformRule
from controller.balance.running.settings import BusSettings, InterfaceBus, LoadSettings, RunSettings
from controller.balance.settings import BalanceSettings
from dataplane.cgroup_limits import limit, make_group, remove_empty
from dataplane.cgroups import group_at, kill_in, quota_milli_of
from tests.network_namespace import network_namespace
from tests.soak.centres import Daemon
from tests.waiting import wait_until

UNIT_MILLI = 2
"""A unit is a five-hundredth of a CPU; there are 100, so that the largest share exists even on a busy machine."""
LEAST, MOST = 10, 90
PERIOD_US = 100_000
WAIT_S = 90.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return once a condition holds, however busy the machine is."""
    wait_until(condition, what, limit_s=WAIT_S, poll_s=0.1)


@contextmanager
def burning(group: str) -> Iterator[None]:
    """Run a busy loop in a control group."""
    code = "import os, sys; os.nice(-15); print(flush=True); sys.stdin.readline()\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        for folder in set(group_at(group).folders.values()):
            (folder / "cgroup.procs").write_text(str(process.pid))
        process.stdin.write(b"\n")
        process.stdin.flush()
        try:
            yield
        finally:
            process.kill()


def unit_settings(unit: str, group: str, namespace: str, api: str) -> RunSettings:
    quota = QuotaLever(group=group, milli=UNIT_MILLI, low=1, high=100, period_us=PERIOD_US, set=True)
    return RunSettings(
        unit=unit,
        bus=BusSettings(interface=InterfaceBus(interface="e0", rate="10 Gbit/s", namespace=namespace)),
        load=LoadSettings(group=group),
        levers=LeverSettings(pool=PoolLever(pool="cpu", holder=unit, api=api, set=True), cpu_quota=quota),
        platform=PlatformRule(),
        interval_s=0.5,
    )


def stop(daemons: list[Daemon]) -> None:
    """Stop daemons, the loops first: they return their units."""
    for daemon in reversed(daemons):
        daemon.kill(signal.SIGTERM)


@pytest.mark.root
@pytest.mark.slow
def test_quotas_follow_the_work(tmp_path: Path) -> None:
    if os.geteuid() != 0 or "cpu" not in group_at("/").folders:
        pytest.skip("needs root and control groups with a quota of CPU time")
    name, api = f"mrq{os.getpid()}", f"unix:{tmp_path}/api.sock"
    groups = {unit: f"/{name}-{unit}" for unit in ("u0", "u1")}

    def milli(unit: str) -> int:
        return quota_milli_of(group_at(groups[unit])) or 0

    with ExitStack() as stack:
        for group in groups.values():
            stack.callback(remove_empty, group)
            made = make_group(group)
            stack.callback(kill_in, made)
            limit(group, 50, None, period_us=PERIOD_US)
        namespace = stack.enter_context(network_namespace(("e0", "e1")))
        storage = StoragePlace(sqlite=str(tmp_path / "api.db"))
        daemons = [Daemon(tmp_path, "api", ("api", "serve"), ApiSettings(storage=storage, listen=(api,)))]
        stack.callback(stop, daemons)
        client = stack.enter_context(SyncApiClient(Place(api)))
        claims = tuple(Claim(holder=unit, least=LEAST) for unit in groups)
        pool = UnitPool(metadata=Metadata(name="cpu"), spec=UnitPoolSpec(units=100, claims=claims, lease_s=10.0))
        wait_for(lambda: "ready" in daemons[0].log, "the API server does not answer")
        client.of(UnitPool).create(pool)
        settings = BalanceSettings(api=api, interval_s=0.2, stale_s=5.0)
        daemons.append(Daemon(tmp_path, "balance", ("balance", "serve"), settings))
        for unit, group in groups.items():
            loop = unit_settings(unit, group, namespace, api)
            daemons.append(Daemon(tmp_path, unit, ("balance", "drive"), loop))
        for busy, idle in (("u0", "u1"), ("u1", "u0")):
            with burning(groups[busy]):
                logs = "".join(daemon.log for daemon in daemons)[-2000:]
                wanted = [MOST * UNIT_MILLI, LEAST * UNIT_MILLI]
                wait_for(lambda: [milli(busy), milli(idle)] == wanted, f"{busy} has {milli(busy)}: {logs}")  # noqa: B023
