"""Pairs of daemons fail again and again, in any order: tables are whole, and no stale write is accepted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.resources import Metadata, Project
from controller.common.errors import StaleError, UnavailableError
from tests.benchmarks.chaining.processes import Daemon
from tests.pairs.takeovers import Failure, running
from tests.waiting import wait_until

ROUNDS = 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("storage", ["sqlite", "etcd"])
def test_pairs_survive_any_order_of_failures(storage: str, tmp_path: Path) -> None:
    rng = random.Random(39)
    failures = [failure for failure in Failure if storage == "etcd" or failure is not Failure.PARTITION]
    times = []
    with running(tmp_path, storage) as setting:
        pairs = setting.pairs
        for _ in range(ROUNDS):
            kind, failure = rng.choice(["controller", "paths"]), rng.choice(failures)
            failed = pairs.active(kind)
            times.append((setting.take_over(kind, failure), kind, str(failure)))
            pairs.until_settled()
            setting.recover()
            assert failed is not None
            # What was stopped or cut off begins anew, and knows who is active.
            wait_until(lambda failed=failed: pairs.is_standing_by(failed), failed)  # type: ignore[misc]
            pairs.until_settled()
            assert pairs.stale_writes() == []
        assert len(pairs.tokens()) > 1
    print(f"{storage}: takeovers took {sorted(times)}")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_api_servers_and_schedulers_take_over(tmp_path: Path) -> None:
    daemons = {name: _cluster_daemon(name, tmp_path) for name in ("api-a", "api-b", "scheduler-a", "scheduler-b")}
    with ExitStack() as stack:
        for daemon in daemons.values():
            stack.enter_context(daemon)
        for number, failure in enumerate((Failure.KILL, Failure.STOP) * 2):
            for kind in ("api", "scheduler"):
                failed, other = _pair(daemons, kind)
                failed.kill() if failure is Failure.KILL else failed.pause()
                before = len(other.log_text())
                wait_until(lambda other=other, before=before: "active as" in other.log_text()[before:])  # type: ignore[misc]
                wait_until(lambda number=number, kind=kind: _writes(tmp_path, f"{kind}{number}"))  # type: ignore[misc]
                failed.start() if failure is Failure.KILL else failed.release()
                wait_until(lambda failed=failed: failed.log_text().rstrip().endswith("is active"), failed.log_text)  # type: ignore[misc]


def _cluster_daemon(name: str, folder: Path) -> Daemon:
    standby = {"sqlite": f"{folder}/lease", "holder": name}
    if name.startswith("api"):
        storage = {"sqlite": f"{folder}/api.sqlite"}
        settings = {"storage": storage, "listen": [f"unix:{folder}/api.sock"], "standby": standby}
        return Daemon(name, ("api", "serve"), settings, folder)
    settings = {"api": f"unix:{folder}/api.sock", "tasks": {}, "standby": standby}
    return Daemon(name, ("scheduler", "serve"), settings, folder)


def _pair(daemons: Mapping[str, Daemon], kind: str) -> tuple[Daemon, Daemon]:
    """Return the active daemon of a kind, and the other one."""

    def role(daemon: Daemon) -> str:
        lines = [line for line in daemon.log_text().splitlines() if f"lease {kind}: " in line]
        return lines[-1] if lines else ""

    pair = [daemons[f"{kind}-{holder}"] for holder in "ab"]
    wait_until(lambda: sum("active as" in role(daemon) for daemon in pair) == 1)
    pair.sort(key=lambda daemon: "active as" not in role(daemon))
    return pair[0], pair[1]


def _writes(folder: Path, name: str) -> bool:
    """Return whether the API server writes a resource within a second."""

    async def write() -> None:
        async with ApiClient(Place(f"unix:{folder}/api.sock"), tries=1) as client, asyncio.timeout(1):
            await client.of(Project).create(Project(metadata=Metadata(name=name)))

    try:
        asyncio.run(write())
    except (UnavailableError, TimeoutError):
        return False
    except StaleError:  # it was written by an attempt whose answer was lost
        return True
    return True
