"""`millrace store`: values from a producer run by the command, and contents of a switch."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.common.errors import SessionError
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.tables.entities import Update, Verb, key_of
from controller.network.tables.store import Copied, Recorded, mark_entity, name_entity
from dataplane.clock import VirtualClock
from dataplane.store.names import Segment, digest
from dataplane.store.producer import Producer
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from tests.waiting import HANG_S

runner = CliRunner()
COMMAND = [sys.executable, "-m", "controller.apps.cli", "store", "serve"]


def run(*arguments: str) -> bytes:
    done = runner.invoke(app, ["store", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes


def test_values_are_written_and_read(tmp_path: Path) -> None:
    value = os.urandom(3000)
    (tmp_path / "value").write_bytes(value)
    with Producer(":memory:", address="127.0.0.1", port=0) as producer:
        where = ("--server", "127.0.0.1", "--port", str(producer.address[1]))
        assert run("put", "/a", str(tmp_path / "value"), *where) == b"/a: version 1\n"
        assert run("get", "/a", *where) == value
        assert run("put", "/b", str(tmp_path / "value"), "--version", "7", *where) == b"/b: version 7\n"
        assert run("get", "/b", "--out", str(tmp_path / "out"), *where) == b"/b: version 7, 3000 bytes\n"
        assert (tmp_path / "out").read_bytes() == value


def test_serving_ends_with_a_signal_and_keeps_values(tmp_path: Path) -> None:
    arguments = [*COMMAND, str(tmp_path / "store.db"), "--address", "127.0.0.1", "--port", "0"]
    (tmp_path / "value").write_bytes(b"kept")
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        ready = re.fullmatch(
            r"millrace store: ready: (.*/store\.db) at 127\.0\.0\.1:(\d+)\n", serving.stderr.readline()
        )
        assert ready is not None
        run("put", "/a", str(tmp_path / "value"), "--server", "127.0.0.1", "--port", ready[2])
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(HANG_S) == 0
    with Producer(ready[1], address="127.0.0.1", port=0) as producer:
        assert producer.read("/a") == b"kept"


def test_contents_of_a_switch_are_shown_with_a_controller(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s1.sock"
    copy = Copied(Segment(digest("/a"), 2), 5, 9, 10 << 24 | 4, 3)
    entities = [name_entity(copy), name_entity(Recorded(Segment(7), 6, 8, 1, forward=False)), mark_entity(77)]

    async def fill() -> None:
        session = GrpcSession(Target("s1", address, 4), load_schema(*fabric_program(FABRIC_AGGREGATION)))
        await session.connect()
        await session.install_pipeline()
        await session.write(tuple(Update(Verb.INSERT, key_of(entity), entity) for entity in entities))
        await session.close()

    with P4RuntimeServer(P4RuntimeCore(Switch(4, [PortSettings(1)], VirtualClock())), [address]):
        asyncio.run(fill())
        shown = run("names", address, "--name", "/a", "--format", "csv").decode().splitlines()
        assert shown == [
            "name,segment,kind,cell,packets,producer",
            "/a,2,copy,5,0,10.0.0.4",
            f"{7:032x},0,recorded,6,0,",
        ]
        shown = run("counters", address, "--format", "csv").decode().splitlines()
        assert shown[:3] == ["outcome,packets", "answered,0", "missed,0"]
        assert len(shown) == 10
        with pytest.raises(SessionError, match=rf"switch {address}: read: NOT_FOUND: there is no device 2 here"):
            run("names", address, "--device-id", "2")
