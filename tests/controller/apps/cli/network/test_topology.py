"""`millrace topology` as text and as JSON."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from dataplane.topology.addressing import format_mac, gateway_mac
from dataplane.topology.file import load_topology

runner = CliRunner()


def run(*words: str) -> str:
    done = runner.invoke(app, ["topology", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_numbers_are_shown_with_names() -> None:
    rows = json.loads(run("switches", "abilene", "--format", "json"))
    assert {(row["switch"], row["id"]) for row in rows} >= {("atlam5", 1), ("atla", 2)}
    assert "atlam5 │ 1 " in run("switches", "abilene")


def test_programs_get_plain_numbers_with_units_in_names() -> None:
    row = json.loads(run("show", "leaf-spine:rate=40G,delay=2us", "--format", "json"))[0]
    assert (row["rate_bps"], row["delay_ns"]) == (40 * 10**9, 2000)
    assert run("show", "abilene", "-f", "csv").startswith(
        "a,a_port,b,b_port,rate_bps,delay_ns,queue_frames,loss,jitter_ns,a_id,a_ipv4,"
    )
    assert "02:00:00:01:00:01" in run("hosts", "abilene", "-f", "csv")
    assert json.loads(run("check", "abilene", "-f", "json")) == [
        {"name": "abilene", "switches": 12, "hosts": 13, "links": 28}
    ]
    assert "abilene" in {row["name"] for row in json.loads(run("list", "-f", "json"))}


def test_show_has_ids_and_addresses() -> None:
    topology = load_topology("abilene")
    link = next(link for link in topology.links if link.b.node in topology.host or link.a.node in topology.host)
    host, edge = (link.b, link.a) if link.b.node in topology.host else (link.a, link.b)
    ours, theirs = ("b", "a") if host is link.b else ("a", "b")
    node = topology.host[host.node]
    rows = json.loads(run("show", "abilene", "--format", "json"))
    (row,) = (row for row in rows if row[ours] == host.node)
    assert (row[f"{ours}_ipv4"], row[f"{ours}_mac"], row[f"{ours}_id"]) == (str(node.ipv4), format_mac(node.mac), None)
    assert row[f"{theirs}_id"] == topology.switch[edge.node].node_id
    assert row[f"{theirs}_mac"] == format_mac(gateway_mac(topology, host.node))
    nodes = run("show", "abilene").splitlines()
    assert any(format_mac(node.mac) in line and f"{edge.node} port {edge.port}" in line for line in nodes)


@pytest.mark.parametrize("command", ["paths explain a b", "job show x"])
def test_one_thing_is_no_list_of_rows(command: str) -> None:
    done = runner.invoke(app, [*command.split(), "--format", "csv"])
    assert done.exit_code == 2
    assert "table or json" in done.output
