"""`millrace table`, `counter` and `register`: state of a switch with any program, next to its controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.common.errors import SessionError
from controller.network.p4runtime.session import fabric_program
from dataplane.clock import VirtualClock
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from tests.p4runtime_client import connect

runner = CliRunner()


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a switch with the fabric's program whose controller has left."""
    address = f"unix:{tmp_path_factory.mktemp('state')}/s1.sock"
    p4info, program = fabric_program()
    made = Switch(1, [PortSettings(1)], VirtualClock())
    with P4RuntimeServer(P4RuntimeCore(made), [address], beside=[GnmiService(GnmiCore(made))]):
        with connect(address, 1) as client:
            client.commit(program, p4info)
        yield address


def run(*words: str) -> str:
    done = runner.invoke(app, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def rows(*words: str) -> list[dict[str, object]]:
    table: list[dict[str, object]] = json.loads(run(*words, "--format", "json"))
    return table


def test_entries_are_written_read_and_deleted(switch: str) -> None:
    described = {row["table"]: row for row in rows("table", "list", switch)}
    assert described["ipv4_routes"]["keys"] == "dst_addr: lpm of 32 bits"
    entry = ("table", "write", switch, "ipv4_routes", "dst_addr=10.0.0.0/24")
    run(*entry, "--action", forward(3))
    (read,) = [row for row in rows("table", "read", switch, "ipv4_routes") if row["match"] != "default"]
    assert read["match"] == {"dst_addr": "10.0.0.0/24"}
    assert "forward(egress_port=0x3" in str(read["action"])
    with pytest.raises(SessionError, match=r"write: ALREADY_EXISTS: "):
        run(*entry, "--action", forward(4))
    run(*entry, "--action", forward(4), "--verb", "modify")
    run(*entry, "--verb", "delete")
    assert [row["match"] for row in rows("table", "read", switch, "ipv4_routes") if row["match"] != "default"] == []


def forward(port: int) -> str:
    """Return the action of a route."""
    return f"forward(egress_port={port}, dst_mac=02:00:00:00:00:0{port})"


def test_counters_and_registers(switch: str) -> None:
    run("counter", "write", switch, "drop_no_route", "0", "--packets", "7", "--bytes", "700")
    assert rows("counter", "read", switch, "drop_no_route") == [{"index": 0, "packets": 7, "bytes": 700}]
    run("register", "write", switch, "watch_packets", "3", "0x11")
    assert rows("register", "read", switch, "watch_packets") == [{"index": 3, "value": 17}]
    assert rows("register", "read", switch, "watch_packets", "--index", "2") == [{"index": 2, "value": 0}]
    assert "drop_no_route" in run("counter", "list", switch)
    assert "watch_packets" in run("register", "list", switch)


def test_unknown_name_is_answered_with_known_ones(switch: str) -> None:
    with pytest.raises(SessionError, match=r"there is no table 'ipv4_rout'; did you mean `ipv4_routes`\?"):
        run("table", "read", switch, "ipv4_rout")
    with pytest.raises(SessionError, match="no table action named 'forwrd'"):
        run(
            "table", "write", switch, "ipv4_routes", "dst_addr=10.0.0.0/24", "--action", "forwrd", "--election-id", "20"
        )


def test_another_device_id_is_answered_with_the_right_one(switch: str) -> None:
    with pytest.raises(SessionError, match="NOT_FOUND: there is no device 7 here: this is device 1"):
        run("table", "list", switch, "--device-id", "7")


def test_second_controller_reads_and_learns_how_to_write(switch: str) -> None:
    with connect(switch, 1):
        assert rows("counter", "read", switch, "drop_bad_ipv4_checksum") == []
        message = r"become primary: another controller is primary, with election id 1: --election-id 2 takes over"
        with pytest.raises(SessionError, match=message):
            run("counter", "write", switch, "drop_no_route", "0")
        run("counter", "write", switch, "drop_no_route", "0", "--election-id", "2")


def test_show_has_all_of_a_switch_at_a_glance(switch: str) -> None:
    run("table", "write", switch, "ipv4_routes", "dst_addr=10.0.7.0/24", "--action", forward(3))
    run("counter", "write", switch, "drop_no_route", "0", "--packets", "5", "--bytes", "500")
    shown = json.loads(run("switch", "show", switch, "--format", "json"))
    assert shown["primary"] is None
    assert shown["program"] == "p4/fabric.p4"
    assert {"table": "ipv4_routes", "size": 4096, "entries": 1} in shown["tables"]
    assert {"counter": "drop_no_route", "size": 1, "in_use": 1, "packets": 5, "bytes": 500} in shown["counters"]
    (port,) = shown["ports"]
    assert (port["port"], port["admin"], port["in-pkts"], port["out-discards"]) == (1, "up", 0, 0)


def test_show_has_the_state_of_segments_with_reasons(tmp_path: Path) -> None:
    """Nobody gives its device id, which it tells itself."""
    address, (p4info, program) = f"unix:{tmp_path}/s4.sock", fabric_program()
    made = Switch(6, [PortSettings(number) for number in (1, 2, 3)], VirtualClock())
    made.set_not_joined(1, "")
    made.set_not_joined(2, "somebody reads")
    with P4RuntimeServer(P4RuntimeCore(made), [address], beside=[GnmiService(GnmiCore(made))]):
        with connect(address, 6) as client:
            client.commit(program, p4info)
        shown = json.loads(run("switch", "show", address, "--format", "json"))
        run("counter", "write", address, "drop_no_route", "0", "--packets", "2")
        assert rows("counter", "read", address, "drop_no_route") == [{"index": 0, "packets": 2, "bytes": 0}]
    assert [port["segments"] for port in shown["ports"]] == ["joined", "somebody reads", None]


def test_show_has_the_controller_and_notes_missing_gnmi(tmp_path: Path) -> None:
    address, (p4info, program) = f"unix:{tmp_path}/s3.sock", fabric_program()
    with P4RuntimeServer(P4RuntimeCore(Switch(1, [PortSettings(1)], VirtualClock())), [address]):
        with connect(address, 1) as client:
            client.commit(program, p4info)
            for _ in range(2):  # the query has not become primary
                assert "P4Runtime 1.5.0, a controller with election id 1\n" in run("switch", "show", address)
        done = runner.invoke(app, ["switch", "show", address, "-f", "json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["primary"], shown["ports"]) == (None, None)
    assert done.stderr == f"millrace: ports are unknown: switch at {address}: it does not serve gNMI\n"
    assert runner.invoke(app, ["switch", "show"]).exit_code == 2


def test_a_switch_without_a_program_and_wrong_usage(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s2.sock"
    with P4RuntimeServer(P4RuntimeCore(Switch(1, [PortSettings(1)], VirtualClock())), [address]):
        done = runner.invoke(app, ["table", "list", address])
        assert str(done.exception) == f"switch {address}: read: it has no program"
    for words in (
        ("table", "write", address, "t", "key"),
        ("table", "write", address, "t", "a=1"),
        ("table", "write", address, "t", "a=1", "--action", "f(x"),
        ("register", "write", address, "r", "0", "five"),
    ):
        assert runner.invoke(app, words).exit_code == 2, words
