"""`millrace config`: the origin of each setting, JSON schemas of all daemons, checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.config import SETTINGS
from controller.common.errors import ControllerError
from controller.network.daemon_settings import switch_addresses
from dataplane.errors import ConfigError, MillraceError
from dataplane.topology.values import Topology

runner = CliRunner()
NEEDED: dict[str, dict[str, object]] = {
    "paths": {"feed": "unix:collector.sock"},
    "controller": {"switches": "unix:{name}.sock"},
    "fabric": {"switches": "switches"},
    "node": {"node": "h-sttl", "state": "state"},
    "centre": {"centre": "c", "state": "state"},
}
"""Settings without a default, besides the topology."""
COLLECTOR = "topology: abilene\nfeed:\n  shortest_interval: 20ms\n"


def run(*words: str) -> str:
    done = runner.invoke(app, ["config", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_each_setting_has_its_origin_and_its_meaning(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(COLLECTOR)
    by_key = {row["key"]: row for row in json.loads(run("show", "collector", "-s", str(file), "--format", "json"))}
    assert (by_key["topology"]["value"], by_key["topology"]["from"]) == ("abilene", f"{file}:1")
    interval = by_key["feed.shortest_interval"]
    assert (interval["value"], interval["from"]) == ("20ms", f"{file}:3")
    assert interval["meaning"].startswith("Snapshots are sent no more often")
    assert by_key["feed.queue_batches"]["from"] == "default"


@pytest.mark.parametrize("daemon", SETTINGS)
def test_every_daemon_has_defaults_and_a_schema(daemon: str) -> None:
    rows = json.loads(run("show", daemon, "--format", "json"))
    assert any(row["meaning"] for row in rows)
    schema = json.loads(run("schema", daemon))
    root = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert {row["key"].partition(".")[0] for row in rows} == root["properties"].keys()
    assert root["additionalProperties"] is False


def test_a_schema_takes_numbers_with_units() -> None:
    retry = json.loads(run("schema", "controller"))["$defs"]["RetrySettings"]["properties"]["first_wait"]
    assert (retry["type"], retry["examples"], retry["default"]) == ("string", ["500ms"], "100ms")
    assert re.search(retry["pattern"], "1.5 s")
    assert not re.search(retry["pattern"], "5")
    rate = json.loads(run("schema", "up"))["$defs"]["DecideSettings"]["properties"]["min_gain_bps"]
    assert rate["anyOf"] == [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["10G"]}]
    assert retry["description"].startswith("Wait before a switch is tried again")


def test_a_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(COLLECTOR)
    assert run("check", "collector", str(file)) == f"{file}: valid collector settings\n"
    file.write_text(COLLECTOR + "feeds: {}\n")
    with pytest.raises(ConfigError, match=r"collector\.yaml:4: feeds: unknown key; did you mean `feed`\?"):
        run("check", "collector", str(file))
    with pytest.raises(ConfigError, match=r"colector: is not a daemon with settings; did you mean `collector`\?"):
        run("check", "colector", str(file))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodes: {nowhere: {}}", r"up\.yaml: nodes\.nowhere: topology abilene has no such host$"),
        ("centres: {c: {hosts: [nowhere]}}", r"up\.yaml: centres\.c\.hosts: topology abilene has no host nowhere$"),
        ("switches: {nowhere: unix:x}", r"switches\.nowhere: topology abilene has no such switch"),
        ("nodes: {h-sttl: {labels: {a: 5}}}", r"up\.yaml:2: nodes\.h-sttl\.labels\.a: expected `str`, got `int`"),
    ],
)
def test_settings_that_up_refuses_fail_the_check(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "up.yaml"
    file.write_text("topology: abilene\n")
    assert run("check", "up", str(file)) == f"{file}: valid up settings\n"
    file.write_text(f"topology: abilene\n{text}\n")
    with pytest.raises(MillraceError, match=problem):
        run("check", "up", str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["up.yaml"]


@pytest.mark.parametrize(
    ("daemon", "text", "problem"),
    [
        ("collector", "sflow: {devices: [{switch: x}]}", r"sflow: devices\[0\]: there is no switch 'x' in abilene"),
        (
            "collector",
            "otlp: {devices: [{switch: x, interfaces: {}}]}",
            r"otlp: devices\[0\]: there is no switch 'x' in",
        ),
        ("collector", "topology: abilen", r"topology: abilen: is neither a file .* did you mean abilene\?"),
        ("collector", "feed: {address: '127.0.0.1:0', tls: {ca: none.pem}}", r"feed\.tls: none\.pem: .*No such file"),
        ("paths", "tls: {ca: given.yaml}", r"tls: given\.yaml: tls: it holds no PEM certificate"),
        ("controller", "switches: {nowhere: 'unix:x'}", r"switches: switches\.nowhere: .* has no such switch"),
        ("controller", "{program: none.json, p4info: none.txtpb}", r"program: none\.txtpb: there is no such file"),
        ("fabric", "{program: none.json, p4info: none.txtpb}", r"program: none\.(json|txtpb): "),
        ("node", "secrets: none", r"secrets: none: no such folder"),
        ("node", "token_file: given.yaml", r"token_file: token file given\.yaml is readable by others; chmod 600"),
        ("node", "node: nowhere", r"node: topology abilene has no host nowhere"),
        ("centre", "hosts: [nowhere]", r"hosts: topology abilene has no host nowhere"),
        ("scheduler", "topology: none.yaml", r"topology: none\.yaml: No such file or directory"),
    ],
)
def test_files_that_settings_name_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: str, text: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"topology": "abilene"} | NEEDED.get(daemon, {})
    file = Path("given.yaml")
    file.write_text(json.dumps(settings))
    file.chmod(0o644)
    assert run("check", daemon, str(file)) == f"given.yaml: valid {daemon} settings\n"
    file.write_text(json.dumps(settings | yaml.safe_load(text)))
    with pytest.raises(ConfigError, match=f"^given\\.yaml: {problem}"):
        run("check", daemon, str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["given.yaml"]


def test_addresses_of_switches_follow_a_pattern(diamond: Topology) -> None:
    addresses = switch_addresses("unix:/run/millrace/{name}-{id}.sock", diamond)
    assert addresses == {node.name: f"unix:/run/millrace/{node.name}-{node.node_id}.sock" for node in diamond.switches}
    addresses = switch_addresses({"*": "unix:/run/{name}.sock", "a": "10.0.0.1:9559"}, diamond)
    assert (addresses["a"], addresses["b"]) == ("10.0.0.1:9559", "unix:/run/b.sock")
    for given, message in (
        ("unix:{nam}", r"switches: \{nam\} in 'unix:\{nam\}' is neither \{name\} nor \{id\}"),
        ({"a": "unix:a"}, "has no address"),
        ({"*": "unix:a", "x": "unix:x"}, r"switches\.x: topology diamond has no such switch; known: a, b, c, d"),
    ):
        with pytest.raises(ControllerError, match=message):
            switch_addresses(given, diamond)
