"""`millrace memory` against a running pool, on recorded machines, and with settings that cannot be."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.memory.errors import HostDownError, MemoryPoolError, NoBlockError
from controller.memory.frame_server import FrameLimits, FrameServer
from controller.memory.host.process import DAEMON as HOST
from controller.memory.pool.process import DAEMON as POOL
from controller.memory.pool.service import PoolTalk
from dataplane.errors import ConfigError
from tests.collectors.devices.machines import SERVER, SERVER_LINKS
from tests.controller.memory.machines import BLOCK, Machine, lab_of, pool_of
from tests.recorded import write_tree

TRACE = "version,time,op,size,lbn\n" + "".join(
    f"1,{100 + n // 8},{'2a' if n % 3 else '28'},4096,{n * 5 % 7 * 8}\n" for n in range(40)
)


def invoke(*words: str) -> str:
    done = CliRunner().invoke(app, ["memory", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a pool of two hosts."""
    with ExitStack() as stack:
        pool, _ = stack.enter_context(pool_of(tmp_path, Machine("h1"), Machine("h2")))
        server = FrameServer(pool.settings.address, None, FrameLimits(), lambda _: PoolTalk(pool))
        yield stack.enter_context(server).address


def test_requests_and_blocks_of_a_pool(address: str, tmp_path: Path) -> None:
    done = invoke("pool", "run", "--pool", address, "--write", "0-2,5", "--operations", "1000", "-f", "csv")
    assert dict(csv.reader(done.splitlines()))["host"] == "h1"
    (tmp_path / "content").write_bytes(b"hello")
    invoke("pool", "put", "9", str(tmp_path / "content"), "--pool", address)
    assert invoke("pool", "get", "9", "--pool", address) == "hello" + "\0" * (BLOCK - 5)
    shown = invoke("pool", "status", "--pool", address)
    assert "Blocks: 5, cached 4, not yet home 0, lost 0." in shown
    assert "Requests: h1 1." in shown
    with pytest.raises(NoBlockError, match="block 77 was never written"):
        invoke("pool", "get", "77", "--pool", address)
    with pytest.raises(MemoryPoolError, match="block 77 was never written"):
        invoke("pool", "run", "--read", "77", "--pool", address)


def test_content_larger_than_a_block_is_refused(address: str, tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(bytes(BLOCK + 1))
    with pytest.raises(ConfigError, match="content: is larger than 4096 bytes"):
        invoke("pool", "put", "9", str(tmp_path / "content"), "--pool", address)


def test_words_that_are_no_keys_and_no_pool() -> None:
    for words in ("7-3", "x", "-1", "1-99999"):
        done = CliRunner().invoke(app, ["memory", "pool", "run", "--read", words])
        assert done.exit_code == 2
    with pytest.raises(HostDownError, match="unix:/nowhere: No such file or directory"):
        invoke("pool", "status", "--pool", "unix:/nowhere")


def test_tiers_of_a_recorded_machine(tmp_path: Path) -> None:
    rows = list(
        csv.DictReader(
            invoke("tiers", "--root", str(write_tree(tmp_path, SERVER, SERVER_LINKS)), "-f", "csv").splitlines()
        )
    )
    assert [row["tier"] for row in rows] == ["node0", "node1", "node2", "nvme"]
    with pytest.raises(ConfigError, match="is not a machine's root"):
        invoke("tiers", "--root", str(tmp_path / "proc"))


def test_trace_is_replayed_on_hosts(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    hosts = ", ".join(f'{{name: {name}, address: "unix:{tmp_path}/{name}.sock"}}' for name in ("h1", "h2"))
    (tmp_path / "pool.yaml").write_text(f"hosts: [{hosts}]\nrule: lru\nwrites: back\n")
    with lab_of(tmp_path, Machine("h1"), Machine("h2")):
        words = ("replay", str(tmp_path / "trace.csv"), "-s", str(tmp_path / "pool.yaml"), "--compression", "100")
        shown = dict(csv.reader(invoke(*words, "-f", "csv").splitlines()))
    assert (shown["requests"], shown["failed"], shown["blocks loaded"]) == ("40", "0", "7")
    assert float(shown["mean response, us"]) >= float(shown["mean wait, us"]) > 0
    assert int(shown["moved bytes"]) > 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: h\ntiers: []\n", "tiers"),
        ("name: h\ntiers: [{name: a, kind: file, capacity_bytes: 1MiB}]\n", "path is for tiers of kind file"),
        ("name: h\ntiers: [{name: a, kind: numa, capacity_bytes: 1MiB}]\n", "numa_node is for tiers of kind numa"),
        ("name: h\ntiers: [{name: a, kind: dram, capacity_bytes: 64KiB}]\n", "fewer than four blocks of 65536 bytes"),
        ("name: h\nblock_bytes: 5000\ntiers: [{name: a, kind: dram, capacity_bytes: 1MiB}]\n", "block_bytes"),
        ("name: h\ntiers: [{name: a, kind: dram, capacity_bytes: 1MiB, home: true}]\n", "tier a cannot be a home"),
        ("name: h\ntiers: [{name: a, kind: tape, capacity_bytes: 1MiB}]\n", "kind"),
    ],
)
def test_settings_of_hosts_that_cannot_be(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "h.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        HOST.load_settings(tmp_path / "h.yaml")


def test_settings_of_pools_that_cannot_be(tmp_path: Path) -> None:
    two = '[{name: a, address: "unix:a"}, {name: a, address: "unix:b"}]'
    for text, problem in (
        ("hosts: []\n", "hosts"),
        (f"hosts: {two}\n", "two hosts have the same name"),
        ('hosts: [{name: a, address: "unix:a"}]\naddress: 127.0.0.1:1\n', "requests come by unix:PATH only"),
        ('hosts: [{name: a, address: "unix:a"}]\nrule: best\n', "rule"),
    ):
        (tmp_path / "p.yaml").write_text(text)
        with pytest.raises(ConfigError, match=problem):
            POOL.load_settings(tmp_path / "p.yaml")
