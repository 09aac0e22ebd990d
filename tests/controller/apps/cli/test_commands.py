"""Commands other than daemons: help, topologies, and queries to a running path server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from collectors.record_columns import RecordColumns
from collectors.values import (
    DelaySource,
    FlowKey,
    FlowMove,
    HopRecord,
    LinkState,
    NetworkSignals,
    PathState,
    RecordKind,
    Snapshot,
)
from controller.apps import cli
from controller.apps.cli.app import app
from controller.apps.cli.table import COMMANDS, help_text
from controller.network.paths.service.process import serve
from controller.network.paths.settings import DecideSettings, MetricsSettings, PathServerSettings
from dataplane.clock import VirtualClock
from dataplane.errors import MillraceError
from dataplane.topology.file import dumps
from dataplane.topology.values import LinkKey, Topology
from tests.waiting import HANG_S

MS = 1_000_000
FLOW = FlowKey(IPv4Address("10.0.1.1"), IPv4Address("10.0.4.1"), 17, 5000, 6000)
READY: list[str] = []
"""Ready messages of path servers."""
runner = CliRunner()


def run(*arguments: str) -> str:
    """Return a command's output; reraise its exception."""
    done = runner.invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_commands_do_not_import_optional_modules() -> None:
    """These modules are slow to load."""
    heavy = {"numpy", "duckdb", "networkx", "scapy", "torch", "grpc", "uvicorn"}
    text = f"import sys, controller.apps.cli.app, controller.apiserver.client; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("word", ["--help", "help", "version", "--version"])
def test_help_and_version_import_little(word: str) -> None:
    text = (
        f"import sys; sys.argv = ['millrace', {word!r}]\nfrom controller.apps.cli import main\nmain()\n"
        "print(len(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert "millrace" in done.stdout
    assert int(done.stderr) < 150


def test_help_has_every_option() -> None:
    command = get_command(app)
    options = {name for parameter in command.params for name in parameter.opts}
    words = help_text().replace(",", " ").split()
    assert options <= set(words)


def test_help_describes_each_command() -> None:
    rows = [row for rows in COMMANDS.values() for row in rows]
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert len(row.help) <= 70, row.name
        assert row.help.endswith("."), row.name


class Feed:
    """Shows one flow over a full link, once per round, and one hop record."""

    def __init__(self, topology: Topology, decided: threading.Event) -> None:
        link = topology.directed_links[LinkKey("a", "b")]
        full = LinkState(
            link.key, link.rate_bps, 60 * MS, 60 * MS, 60 * MS, 9.0, 0.5, 5_000_000, None, 0, 9, DelaySource.STAMPS
        )
        path = PathState(FLOW, ("a", "b", "d"), 60 * MS, 5_000_000, 0, 100_000)
        self._snapshot = Snapshot(0, {link.key: full}, {FLOW: path}, {})
        self._decided = decided

    async def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        assert interval_ns > 0
        for _ in range(20):
            yield self._snapshot
            await asyncio.sleep(0.01)
        self._decided.set()
        await asyncio.Event().wait()

    async def record_columns(self, reports_per_s: int | None = None) -> AsyncIterator[RecordColumns]:
        assert reports_per_s
        stacked = HopRecord(1, FLOW, 1, 1, 0, None, 1, 1, 2, 7000, 0, 3, 10, 7010, 999, 1)
        yield RecordColumns.of([stacked, replace(stacked, kind=RecordKind.XD, tx_bytes_per_window=998)])
        await asyncio.Event().wait()

    async def signals(self, queue_frames: float, shortest_gap_ns: int) -> AsyncIterator[NetworkSignals]:
        assert queue_frames > 0 < shortest_gap_ns
        yield NetworkSignals()
        await asyncio.Event().wait()

    async def snapshot(self) -> Snapshot:
        return self._snapshot

    async def note_moves(self, moves: Sequence[FlowMove]) -> None:
        assert moves


@contextmanager
def path_server(topology: Topology) -> Iterator[str]:
    """Run a path server in a thread; yield its address once it has decided."""
    with TemporaryDirectory(prefix="cli") as folder:
        address, decided, ended = f"unix:{folder}/paths", threading.Event(), threading.Event()
        settings = PathServerSettings(
            topology="",
            feed="",
            listen=address,
            decide=DecideSettings(hold_down_ns=0, settle_ns=0, confirm_rounds=3),
            metrics=MetricsSettings(port=0),
        )

        async def scene() -> None:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            told = loop.run_in_executor(None, ended.wait)
            told.add_done_callback(lambda _: stop.set())
            await serve(settings, topology, Feed(topology, decided), VirtualClock(), stop, on_ready=READY.append)

        thread = threading.Thread(target=lambda: asyncio.run(scene()))
        thread.start()
        try:
            assert decided.wait(HANG_S)
            yield address
        finally:
            ended.set()
            thread.join(HANG_S)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def server(diamond: Topology) -> Iterator[str]:
    """Return the address of a path server that has moved ha->hd off a->b."""
    with path_server(diamond) as address:
        yield address


def test_metrics_of_a_live_path_server(server: str) -> None:
    line = next(line for line in READY if server in line)
    with urllib.request.urlopen(line.partition("metrics at ")[2], timeout=20) as answer:
        text = answer.read().decode()
    assert "millrace_paths_explicit_routes 1.0" in text


def test_routes_and_reasons_of_a_live_path_server(server: str) -> None:
    assert "ha → hd │ a c d" in run("paths", "routes", "--server", server)
    output = run("paths", "explain", "ha", "hd", "--server", server)
    assert "│ now │ a c d" in output
    assert "has less delay than a-b-d" in output
    assert output.startswith("a-c-d (")
    assert output.index("│ now │ a c d") < output.index("moved at") < output.index("newest records")
    assert "│ a      │ b  │ 7          │ 3" in output


def test_routes_as_segment_lists(server: str, diamond: Topology, tmp_path: Path) -> None:
    (tmp_path / "diamond.yaml").write_text(dumps(diamond))
    sids = tmp_path / "sids.yaml"
    ids = "mpls: {nodes: {c: 16003, d: 16004}, links: {'a->c': 30001}}"
    given = f"topology: %s/diamond.yaml\nmetric: delay\ncosts: {{'a->c': 9000}}\n{ids}\n"
    sids.write_text(given % tmp_path)
    assert "│ 30001 16004" in run("paths", "segments", str(sids), "--server", server)
    sids.write_text(given.replace("d: 16004", "b: 16002") % tmp_path)
    (row,) = json.loads(run("paths", "segments", str(sids), "--server", server, "--format", "json"))
    assert (row["switches"], row["segments"]) == (["a", "c", "d"], [])
    assert row["problem"] == "no segment mpls.nodes.d is given"


def test_history_of_a_live_path_server(server: str) -> None:
    assert "a c d │ a-c-d (" in run("paths", "history", "--server", server)
    assert "a c d" not in run("paths", "history", "--src", "hd", "--server", server)
    assert "a c d" in run("paths", "history", "--until", "1970-01-01T01:00:01+01:00", "--server", server)
    assert "a c d" not in run("paths", "history", "--since", "1970-01-02", "--server", server)


def test_programs_get_times_in_nanoseconds(server: str) -> None:
    [move] = json.loads(run("paths", "history", "--server", server, "--format", "json"))
    assert (move["time_ns"], move["src_host"], move["new_path"]) == (0, "ha", ["a", "c", "d"])
    told = json.loads(run("paths", "explain", "ha", "hd", "--server", server, "--json"))
    assert (told["moves"][0]["time_ns"], told["records"][0]["received_ns"]) == (0, 1)
    assert json.loads(run("paths", "records", "--server", server, "-f", "json"))[0]["received_ns"] == 1


@pytest.mark.parametrize("which", [(), ("--src", "10.0.1.1", "--dst", "10.0.4.1"), ("--link", "a->b")])
def test_records_of_a_live_path_server(server: str, which: tuple[str, ...]) -> None:
    output = run("paths", "records", "--server", server, *which)
    assert "1970-01-01 00:00:00.000 │ 10.0.1.1" in output
    assert "10.0.1.1:5000 → 10.0.4.1:6000 │ 0   │ a (1) │ 1  │ 2   │ 7          │ 3     │ 999" in output
    assert "10.0.1.1:5000 → 10.0.4.1:6000 │ xd  │ a (1) │ 1  │ 2   │ 7          │ 3     │ 998" in output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("explain", "ha", "hx"), "topology diamond has no host 'hx'"),
        (("explain", "ha", "hd", "--protocol", "6"), "ha->hd is not managed: telemetry has not seen it"),
        (("records", "--src", "x", "--dst", "y"), "'x' is neither an IPv4 nor an IPv6 address"),
        (("records", "--link", "a->x"), "has no link a->x"),
        (("link", "a->x", "down"), "has no link a->x between switches"),
        (("history", "--since", "2026-01-02", "--until", "2026-01-01"), "is not a valid time span"),
    ],
)
def test_questions_without_an_answer(server: str, arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(MillraceError, match=problem):
        run("paths", *arguments, "--server", server)


@pytest.mark.parametrize("question", [("routes",), ("explain", "a", "b"), ("records",)])
@pytest.mark.parametrize("address", ["unix:/none/here", "nowhere", ""])
def test_unreachable_path_server_is_reported_at_once(question: tuple[str, ...], address: str) -> None:
    with pytest.raises(MillraceError, match="path server at"):
        run("paths", *question, "--server", address)


def test_wrong_usage_is_status_2(server: str) -> None:
    assert runner.invoke(app, ["paths", "records", "--server", server, "--link", "ab"]).exit_code == 2
    assert runner.invoke(app, ["paths", "link", "a->b", "gone", "--server", server]).exit_code == 2
    assert runner.invoke(app, ["paths", "records", "--server", server, "--src", "10.0.1.1"]).exit_code == 2
    for time in ("nan", "1e300", "-1", "noon", ""):
        assert runner.invoke(app, ["paths", "history", "--server", server, f"--since={time}"]).exit_code == 2
    assert runner.invoke(app, ["topology", "check"]).exit_code == 2
    assert runner.invoke(app, ["demo", "--seed", "x"]).exit_code == 2


def test_help_of_everything(capfd: pytest.CaptureFixture[str]) -> None:
    output = run("--help")
    for command in ("demo", "switch", "collector", "controller", "clean", "paths", "topology"):
        assert command in output
    # The switch's own parser prints directly, not through the runner.
    printed = run("switch", "--help") + capfd.readouterr().out
    for option in ("--grpc-server-addr", "--cpu-port", "--device-id"):
        assert option in printed


def test_topologies_are_listed_checked_and_shown(tmp_path: Path) -> None:
    assert run("topology", "list").split() == ["abilene", "fat-tree-4", "geant", "leaf-spine"]
    for name in ("abilene", "leaf-spine:spines=2,leaves=3"):
        assert "switches" in run("topology", "check", name)
    shown = run("topology", "show", "leaf-spine")
    assert "│ leaf1     │ 4    │ spine1 │ 1    │ 10 Gbit/s │ 1 us  │ 256   │ 0%   │ 0 ns   │" in shown
    rough = run("topology", "show", "ring:loss=0.25%,jitter=2us", "--format", "json")
    assert {(link["loss"], link["jitter_ns"]) for link in json.loads(rough)} == {(0.0025, 2_000)}
    of_hosts = run("topology", "hosts", "leaf-spine")
    for part in ("│ h5", "10.0.5.1", "scm 1 TiB", "1 fpga Alveo U280"):
        assert part in of_hosts
    bad = tmp_path / "bad.yaml"
    bad.write_text("millrace: 1\nname: bad\nswitches: [{name: s1, colour: red}]\n", encoding="utf-8")
    with pytest.raises(MillraceError, match=r"bad.yaml:3: switches\[0\].colour: unknown key"):
        run("topology", "check", str(bad))


def test_probes_are_planned() -> None:
    planned = runner.invoke(app, ["telemetry", "probe", "--topology", "leaf-spine"])
    assert planned.stdout.split("\n")[:2] == ["h1 h3", "h3 h1"]
    assert planned.stderr == ""
    with pytest.raises(MillraceError, match="no host 'h99'"):
        run("telemetry", "probe", "--topology", "leaf-spine", "--host", "h99")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (MillraceError("no way"), 1, "millrace: no way\n"),
        (ImportError("No module named 'rich'"), 1, "millrace: No module named 'rich'\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_error_of_a_command_is_a_line_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, message: str
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("controller.apps.cli.app.app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    assert capsys.readouterr().err == message


def test_an_output_that_is_full_is_a_line() -> None:
    command = [sys.executable, "-m", "controller.apps.cli", "balance", "example"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=HANG_S)
    assert (ended.returncode, ended.stderr) == (1, "millrace: output: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("get", "nodes"), "API at unix:{}/millrace/api.sock: cannot connect: {}; is it running? `millrace api serve`"),
        (("telemetry", "links"), "collector at unix:{}/millrace/collector.sock: cannot connect: {}; is it running? "),
        (("paths", "status"), "path server at unix:{}/millrace/paths.sock: cannot connect: {}; is it running? `mill"),
    ],
)
def test_refused_connection_says_how_to_start(tmp_path: Path, words: tuple[str, ...], line: str) -> None:
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    environ.pop("MILLRACE_API", None)
    command = [sys.executable, "-m", "controller.apps.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, env=environ)
    assert (done.returncode, done.stdout) == (1, "")
    (told,) = done.stderr.splitlines()
    assert told.startswith(f"millrace: {line.format(tmp_path, 'No such file or directory')}")
    assert told.endswith("serve` starts it, and `millrace up` everything")
