"""Demo of one packet: the display of each cable matches its frame and the switch's measurements."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.demo.packet.command import columns_of
from controller.apps.demo.packet.journey import Journey, ends, travel
from controller.apps.demo.packet.parts import Part
from controller.network.tables.telemetry.int_watch import Mode
from dataplane.errors import FabricError
from dataplane.topology.file import load_topology

TOPOLOGY = load_topology("leaf-spine:spines=2,leaves=2,hosts=2")


@pytest.fixture(scope="module")
def journey() -> Journey:
    return travel(TOPOLOGY, "h1", "h4")


def titles(parts: tuple[Part, ...], kind: str) -> list[str]:
    return [part.title for part in parts if part.kind == kind]


def test_each_hop_adds_metadata_and_the_sink_reports_all(journey: Journey) -> None:
    _, leaf, spine, _, _ = journey.path
    *cables, report = columns_of(journey)
    stacks = [titles(column.parts, "hop") for column in cables]
    assert stacks == [[], [f"hop {leaf}"], [f"hop {spine}", f"hop {leaf}"], []]
    added = [[part.title for part in column.parts if part.is_new] for column in cables]
    assert added == [[], ["INT shim", "INT-MD", f"hop {leaf}"], [f"hop {spine}"], []]
    assert titles(report.parts, "hop") == ["leaf2's own hop", f"hop {spine}", f"hop {leaf}"]
    ip = next(part for part in cables[-1].parts if part.kind == "ip")
    assert "DSCP 0 (was 23)" in ip.lines()
    for column, seen in zip((*cables, report), (*journey.seen, *journey.reports), strict=True):
        assert sum(part.size for part in column.parts) == len(seen.frame)


def test_payload_arrives_unchanged_and_hops_report_real_queues(journey: Journey) -> None:
    """Others send just before it: it waits in at least one switch, and its arrivals agree with the hops' reports."""
    first, last = journey.seen[0], journey.seen[-1]
    assert first.frame[34:] == last.frame[34:]
    *_, report = columns_of(journey)
    hops = [dict(part.fields) for part in report.parts if part.kind == "hop"][::-1]
    assert any(float(hop["latency"].removesuffix(" us")) > 0 for hop in hops)
    assert any(hop["queue"] != "0 frames" for hop in hops)
    came_ms = [float(hop["came"].removesuffix(" ms")) for hop in hops]
    assert came_ms == pytest.approx([passage.arrived_ns / 1e6 for passage in journey.seen[:-1]], abs=0.0011)
    for hop, (tail, head) in zip(hops, pairwise(journey.path[1:]), strict=True):
        assert TOPOLOGY.neighbours[tail][int(hop["out"].split()[0])].node == head


@pytest.mark.parametrize(("mode", "more", "reports"), [("mx", 16, 3), ("hop-by-hop", 16, 3), ("xd", 0, 3)])
def test_in_the_other_modes_every_hop_reports(mode: Mode, more: int, reports: int) -> None:
    journey = travel(TOPOLOGY, "h1", "h4", mode=mode)
    sizes = [len(passage.frame) for passage in journey.seen]
    assert (max(sizes) - sizes[0], len(journey.reports)) == (more, reports)
    shown = [column for column in columns_of(journey) if column.is_report]
    assert {titles(column.parts, "hop")[0] for column in shown} == {f"{name}'s own hop" for name in journey.path[1:-1]}


def test_packets_depend_on_the_seed_alone() -> None:
    frames = [[passage.frame for passage in travel(TOPOLOGY, "h1", "h4", seed=seed).seen] for seed in (1, 1, 2)]
    assert frames[0] == frames[1] != frames[2]


def test_the_hosts_are_the_first_and_one_that_is_far_from_it() -> None:
    assert ends(load_topology("abilene"), None, None) == ("h-atlam5", "h-sttl")
    assert ends(TOPOLOGY, None, "h1") == ("h3", "h1")
    for src, dst, problem in (
        ("h1", "h9", "has no host 'h9'"),
        ("h1", "h1", "a packet from h1 to itself crosses no cable"),
    ):
        with pytest.raises(FabricError, match=problem):
            ends(TOPOLOGY, src, dst)


def test_the_command_prints_the_headers_and_leaves_pictures(tmp_path: Path) -> None:
    spec = ["--topology", "leaf-spine:spines=1,leaves=2,hosts=1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["demo", "int", *spec, "--mode", "hop-by-hop"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "leaf1 > spine1: 158 bytes" in done.output
    assert "3 switches; 16 bytes of telemetry in the packet at most, 3 reports" in done.output
    assert (tmp_path / "out" / "packet.png").read_bytes().startswith(b"\x89PNG")
    picture = (tmp_path / "out" / "packet.svg").read_text()
    assert "report spine1 &gt; collector" in picture
    wrong = CliRunner().invoke(app, ["demo", "--seed", "1", "int", *spec])
    assert wrong.exit_code == 2
    assert "write it after" in wrong.output
    assert CliRunner().invoke(app, ["demo", "int", "--mode", "up"]).exit_code == 2
