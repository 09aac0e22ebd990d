"""The guard of a unit's levers after the loop is killed, hangs or ends; quotas on a tree of files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from controller.balance.errors import LeverError
from controller.balance.levers.settings import LeverSettings, PoolLever, QuotaLever
from controller.balance.running.guard import Guard, GuardOrder
from tests.controller.balance.running.parts import Machine
from tests.waiting import HANG_S, wait_until

QUOTA = QuotaLever(group="/unit", low=5, set=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def guard(machine: Machine, levers: LeverSettings, hold_s: float) -> Guard:
    return Guard(GuardOrder(levers=levers, hold_s=hold_s, root=str(machine.folder)))


LOOP = """
import sys, msgspec
from controller.balance.running.guard import Guard, GuardOrder
with Guard(msgspec.json.decode(sys.argv[1], type=GuardOrder)) as guard:
    guard.beat()
    print("turn", flush=True)
    sys.stdin.read()
"""


def test_levers_of_a_killed_loop_are_restored_after_the_hold(machine: Machine) -> None:
    order = GuardOrder(levers=LeverSettings(cpu_quota=QUOTA), hold_s=0.5, root=str(machine.folder))
    command = [sys.executable, "-c", LOOP, msgspec.json.encode(order).decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"turn\n"
        machine.units().move(-20)
        loop.kill()
    wait_until(lambda: machine.quota() == "50000")


def test_a_guard_that_a_service_manager_ends_releases_at_once(machine: Machine) -> None:
    with guard(machine, LeverSettings(cpu_quota=QUOTA), 600) as watcher:
        watcher.beat()
        machine.units().move(-20)
        watcher._process.terminate()
        watcher._process.wait(HANG_S)
        assert machine.quota() == "50000"


def test_levers_of_a_hanging_loop_are_released_and_rewatched(machine: Machine) -> None:
    with guard(machine, LeverSettings(cpu_quota=QUOTA), 0.2) as watcher:
        for _ in range(2):
            machine.units().move(-20)
            watcher.beat()
            wait_until(lambda: machine.quota() == "50000")


def test_pool_driven_lever_goes_to_its_low_end(machine: Machine) -> None:
    levers = LeverSettings(cpu_quota=QUOTA, pool=PoolLever(pool="p", holder="u"))
    with guard(machine, levers, 0.2) as watcher:
        watcher.beat()
        wait_until(lambda: machine.quota() == "5000")


def test_guard_lowers_a_pool_driven_lever_at_the_given_time(machine: Machine) -> None:
    levers = LeverSettings(cpu_quota=QUOTA, pool=PoolLever(pool="p", holder="u"))
    with guard(machine, levers, 600) as watcher:
        until_ns = time.monotonic_ns() + 300_000_000
        watcher.beat(until_ns)
        wait_until(lambda: machine.quota() == "5000")
        assert time.monotonic_ns() >= until_ns


def test_a_loop_that_ends_has_released_its_levers_itself(machine: Machine) -> None:
    with guard(machine, LeverSettings(cpu_quota=QUOTA), 0.0) as watcher:
        machine.units().move(-20)
        process = watcher._process
    assert process.returncode == 0
    assert machine.quota() == "30000"


def test_a_guard_that_has_ended_is_an_error(machine: Machine) -> None:
    with guard(machine, LeverSettings(cpu_quota=QUOTA), 60) as watcher:
        watcher._process.kill()
        watcher._process.wait()
        with pytest.raises(LeverError, match="lever guard: the guard process has ended: Broken pipe"):
            watcher.beat()
