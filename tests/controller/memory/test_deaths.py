"""Hosts that die in the middle of moves: nothing that was acknowledged is lost, and the pool goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from controller.memory.errors import HostDownError, MemoryPoolError, NoBlockError
from controller.memory.pool.deciding import Decider, rule_of
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.settings import PoolHost
from controller.memory.pool.values import Request, Writes
from tests.controller.memory.machines import BLOCK, Lab, Machine, Relay, content, lab_of, pool_of, pool_settings
from tests.waiting import wait_until

KEYS = range(4)
MACHINES = Machine("h1", home=0), Machine("far", cores=0)


@contextmanager
def relayed(folder: Path, writes: Writes) -> Iterator[tuple[MemoryPool, Lab, Relay]]:
    """Yield a pool of a host with fast memory and one, behind a relay, with the homes."""
    with lab_of(folder, *MACHINES) as lab:
        relay = Relay(folder / "relay.sock", folder / "far.sock")
        settings = pool_settings(folder, ["h1"], writes=writes)
        hosts = (*settings.hosts, PoolHost(name="far", address=f"unix:{folder}/relay.sock"))
        try:
            with MemoryPool(msgspec.structs.replace(settings, hosts=hosts), Decider(rule_of("lru"))) as pool:
                yield pool, lab, relay
        finally:
            relay.close()


def back(pool: MemoryPool, folder: Path) -> Relay:
    """Have the host return at its address."""
    relay = Relay(folder / "relay.sock", folder / "far.sock")
    wait_until(lambda: pool.catalogue.up[1], "the host does not return")
    return relay


@pytest.mark.parametrize("cut", [0, 10, 32, 1000, 32 + BLOCK - 1])
def test_source_dies_within_a_block(tmp_path: Path, cut: int) -> None:
    with relayed(tmp_path, Writes.THROUGH) as (pool, lab, relay):
        for key in KEYS:
            pool.write(key, content(key))
        relay.cut(cut)
        with pytest.raises(MemoryPoolError, match=r"far|relay"):
            pool.run(Request(reads=(0,)))
        assert lab.store("h1").tier(0).listed(0, 9) == ((), False)
        again = back(pool, tmp_path)
        assert [pool.run(Request(reads=(key,))).error for key in KEYS] == [""] * 4
        assert [pool.read(key) for key in KEYS] == [content(key) for key in KEYS]
        assert pool.mover.lost == {}
        again.close()


@pytest.mark.parametrize("cut", [0, 10, 32, 60])
def test_destination_dies_while_a_block_goes_home(tmp_path: Path, cut: int) -> None:
    """The answer to the copy is cut at any byte: until the pool knows it is home, fast memory keeps the block."""
    with relayed(tmp_path, Writes.BACK) as (pool, lab, relay):
        for key in KEYS:
            pool.run(Request(writes=(key,), data={key: content(key, 1)}))
        relay.cut(cut)
        with pytest.raises(MemoryPoolError):
            pool.flush()
        assert [key for key, _ in lab.store("h1").tier(0).listed(0, 9)[0]] == list(KEYS)
        again = back(pool, tmp_path)
        pool.clear_caches()
        assert [pool.read(key) for key in KEYS] == [content(key, 1) for key in KEYS]
        assert pool.mover.lost == {}
        again.close()


def test_host_that_ran_a_request_dies_and_another_runs_it(tmp_path: Path) -> None:
    machines = Machine("h1", home=0), Machine("h2", home=0), Machine("far", cores=0)
    with pool_of(tmp_path, *machines, rule="lru") as (pool, lab):
        for key in KEYS:
            pool.run(Request(writes=(key,), data={key: content(key, 1)}))
        lab.stop("h1")
        results = [pool.run(Request(reads=(key,), writes=(key + 10,))) for key in KEYS]
        assert {result.host for result in results} == {"h2"}
        assert pool.counts["decided again"] >= 1
        assert pool.mover.lost == {}
        lab.start("h1")
        wait_until(lambda: pool.catalogue.up[0], "the host does not return")
        assert [pool.read(key) for key in KEYS] == [content(key, 1) for key in KEYS]


def test_writes_back_lost_with_memory_are_not_hidden(tmp_path: Path) -> None:
    machines = Machine("h1", home=0), Machine("h2", home=0), Machine("far", cores=0)
    with pool_of(tmp_path, *machines, rule="lru", writes=Writes.BACK) as (pool, lab):
        pool.write(0, content(0))
        pool.run(Request(writes=(0,), data={0: content(0, 2)}))
        lab.stop("h1")
        with pytest.raises(HostDownError):
            pool.read(0)
        with pytest.raises(
            NoBlockError, match="block 0: version 2 died with a host, version 1 is left; write it again"
        ):
            pool.read(0)
        pool.write(0, content(0, 3))
        assert pool.read(0) == content(0, 3)
        assert pool.mover.lost == {}


def test_damaged_copy_is_replaced_from_home(tmp_path: Path) -> None:
    with pool_of(tmp_path, Machine("h1"), Machine("h2"), rule="lru") as (pool, lab):
        pool.write(0, content(0))
        pool.run(Request(reads=(0,)))
        tier = lab.store("h1").tier(0)
        tier._slots.write(tier._blocks[0].slot, bytes(BLOCK))
        assert pool.run(Request(reads=(0,))).host == "h2"
        assert pool.read(0) == content(0)


SERVED = """
name: far
address: unix:{folder}/far.sock
block_bytes: 4096
cores: 0
tiers: [{{name: file, kind: file, capacity_bytes: 4MiB, path: {folder}/far.blocks}}]
"""


@contextmanager
def daemon(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a host as a process of its own, once it is ready."""
    settings = folder / "far.yaml"
    settings.write_text(SERVED.format(folder=folder))
    command = [sys.executable, "-m", "controller.apps.cli", "memory", "serve", "-s", str(settings)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(b"millrace memory: ready: host far at unix:"), line + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def test_killed_daemon_loses_no_block(tmp_path: Path) -> None:
    """SIGKILL at some moment of many moves home; every block has the content that was acknowledged."""
    written = 120
    with lab_of(tmp_path, Machine("h1", cores=2, fast=16, home=0)):
        settings = pool_settings(tmp_path, ["h1", "far"], writes=Writes.BACK, room_s=60)
        with daemon(tmp_path) as process, MemoryPool(settings, Decider(rule_of("lru"))) as pool:
            futures = [pool.submit(Request(writes=(key,), data={key: content(key, 1)})) for key in range(written)]
            wait_until(lambda: sum(future.done() for future in futures) > written // 3)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            with daemon(tmp_path):
                acknowledged = [key for key, future in enumerate(futures) if not future.result().error]
                assert len(acknowledged) > written // 3
                wait_until(lambda: pool.catalogue.up[1], "the host does not return")
                assert pool.mover.lost == {}
                assert [pool.read(key) for key in acknowledged] == [content(key, 1) for key in acknowledged]
