"""`millrace trace` and `stf --trace`: packets from every source, entries in every form, one line for an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.apps.cli import app as cli_app
from dataplane.errors import ConfigError, MillraceError, PortError
from dataplane.nic.capture.pcap import PcapWriter

ROOT = Path(__file__).parents[5]
FORWARDER = ROOT / "docs" / "examples" / "own_program" / "forwarder.json"
PROGRAMS = ROOT / "tests" / "dataplane" / "programs"
HEAD = "020000000002020000000001080045000014000100004011630a0a000101"
PACKET = f"{HEAD}0a0002c8"
STF = "add routes dst_addr:0x0a0002** forward(port:2)\npacket 1 00\nexpect 2 00\n"
ENTRY: dict[str, object] = {
    "table": "ForwarderIngress.routes",
    "match": {"dst_addr": ["10.0.2.0", 24]},
    "action_name": "ForwarderIngress.forward",
    "action_params": {"port": 2},
}
RUNTIME = {
    "target": "bmv2",
    "p4info": "forwarder.p4info.txtpb",
    "table_entries": [ENTRY],
    "multicast_group_entries": [{"multicast_group_id": 1, "replicas": [{"egress_port": 1, "instance": 1}]}],
    "clone_session_entries": [{"clone_session_id": 5, "replicas": [{"egress_port": 2, "instance": 1}]}],
}
REQUEST = r"""
updates { type: INSERT entity { table_entry {
  table_id: 47954924
  match { field_id: 1 lpm { value: "\012\000\002\000" prefix_len: 24 } }
  action { action { action_id: 33041151 params { param_id: 1 value: "\002" } } }
} } }
"""


def trace(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(cli_app.app, ["trace", str(FORWARDER), *words], input=given)


def objects(done: Result) -> list[dict[str, object]]:
    assert done.exit_code == 0, (done.output, done.exception)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "text"), [("s1.stf", STF), ("s1-runtime.json", json.dumps(RUNTIME)), ("s1.txtpb", REQUEST)]
)
def test_entries_are_read_in_every_form(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (packet,) = objects(trace(PACKET, "--entries", str(tmp_path / name), "--format", "json"))
    assert packet["sent"] == [{"port": 2, "data": PACKET}]


def test_entries_file_gives_const_and_priority(tmp_path: Path) -> None:
    """Kind 7, port 1, length 8: the drop has the declared priority 50, or 4 if none is declared."""
    for ending in ("json", "p4info.txtpb"):
        shutil.copy(PROGRAMS / f"presets.{ending}", tmp_path)
    packet, named = "07 0008 0b000001 0080".replace(" ", ""), str(PROGRAMS / "presets.entries.txtpb")

    def ranked(*words: str) -> tuple[object, object]:
        words = ("trace", str(tmp_path / "presets.json"), packet, "--format", "json", *words)
        (traced,) = objects(CliRunner().invoke(cli_app.app, words))
        passages = traced["passages"]
        assert isinstance(passages, list)
        steps = [step for passage in passages for step in passage["steps"]]
        (step,) = [step for step in steps if step.get("table") == "PresetsIngress.ranked"]
        return step["priority"], step["constant"]

    assert ranked() == (4, False)
    assert ranked("--presets", named) == (50, False)
    shutil.copy(named, tmp_path)
    assert ranked() == (50, False)


def test_packets_come_from_a_capture_or_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.pcap"
    with PcapWriter(path) as writer:
        for last in (1, 2, 3):
            writer.write(bytes.fromhex(f"{HEAD}0a00020{last}"), last)
    assert [str(packet["data"])[-1] for packet in objects(trace(f"@{path}", "--format", "json"))] == ["1", "2", "3"]
    assert [str(packet["data"])[-1] for packet in objects(trace(f"@{path}:2", "--format", "json"))] == ["2"]
    lines = objects(trace("-", "--format", "json", "--port", "7", given=f"{HEAD}0a000204\n\n0x{HEAD}0a000205\n"))
    assert [(packet["packet"], packet["port"], str(packet["data"])[-1]) for packet in lines] == [
        (1, 7, "4"),
        (2, 7, "5"),
    ]


def test_filter_omits_packets_but_not_their_effects() -> None:
    lines = "".join(f"{HEAD}0a00020{last}\n" for last in (1, 2, 3))
    packets = objects(trace("-", "--format", "json", "--filter", "ipv4.dst_addr==10.0.2.3", given=lines))
    assert [packet["packet"] for packet in packets] == [3]


def test_scapy_shows_layers() -> None:
    pytest.importorskip("scapy")
    done = trace(PACKET, "--format", "scapy")
    assert "###[ ipv4 ]###" in done.stdout
    assert "dst_addr  = 10.0.2.200" in done.stdout
    assert "sent by port 255\n###[ packet_in ]###" in done.stdout


@pytest.mark.parametrize(
    ("words", "text", "problem"),
    [
        (["0"], "", "PACKET: a packet is pairs of hex digits"),
        (["@none.pcap"], "", "none.pcap: No such file or directory"),
        ([PACKET, "--entries", "e.stf"], "add nothing a:1 b()", "e.stf:1: table nothing: the program has none of that"),
        ([PACKET, "--entries", "e.json"], "[]", "e.json: Expected `object`, got `array`"),
        (
            [PACKET, "--entries", "e.json"],
            json.dumps({"table_entries": [ENTRY | {"action_params": {}}]}),
            "e.json: table_entries[0]: ForwarderIngress.routes: ForwarderIngress.forward: argument port is missing",
        ),
        (
            [PACKET, "--entries", "e.json"],
            json.dumps({"table_entries": [ENTRY | {"match": {"dst_addr": "x"}}]}),
            "e.json: table_entries[0]: ForwarderIngress.routes: dst_addr: 'x' is neither a number nor an address",
        ),
        (
            [PACKET, "--entries", "e.txtpb"],
            "updates { x: 1 }",
            'e.txtpb:1: Message type "p4.v1.Update" has no field named "x"',
        ),
        (
            [PACKET, "--entries", "e.txtpb"],
            "updates { type: INSERT entity { table_entry { table_id: 3 } } }",
            "updates[0]",
        ),
        (
            [PACKET, "--filter", "ipv4.dst_addr=="],
            "",
            "--filter: ends where a number or an address is expected, at column",
        ),
    ],
)
def test_an_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], text: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (word for word in words if word.startswith("e.")):
        (tmp_path / name).write_text(text)
    done = trace(*words)
    assert isinstance(done.exception, ConfigError | PortError)
    assert isinstance(done.exception, MillraceError)
    assert problem in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize("form", ["text", "json"])
def test_stf_explains_each_packet(tmp_path: Path, form: str) -> None:
    test = tmp_path / "t.stf"
    test.write_text(f"{STF.splitlines()[0]}\npacket 1 {PACKET}\nexpect 2 {PACKET}\n")
    words = ["stf", str(FORWARDER), str(FORWARDER.with_suffix(".p4info.txtpb")), str(test)]
    done = CliRunner().invoke(cli_app.app, [*words, "--trace", "--trace-format", form])
    *told, last = done.stdout.splitlines()
    assert (done.exit_code, last) == (0, "passed")
    if form == "json":
        assert json.loads(told[0])["time_us"] == 1_000_000
    else:
        assert told[:2] == [f"{test}:2:", "packet 1: 34 bytes by port 1 at 1.000000 s, program forwarder"]
