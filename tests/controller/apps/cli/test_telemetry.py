"""`millrace telemetry`: queries to a running collector and a history; one line for each failure."""

from __future__ import annotations

import asyncio
import csv
import getpass
import io
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from collectors.collector import Collector
from collectors.errors import FeedError, HistoryError
from collectors.events.rules import Rule, RuleSettings
from collectors.events.service import EventService
from collectors.feed.server import FeedServer, FeedSettings
from collectors.history.rows import Observation, RowMaker
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from collectors.values import ChildKey, CollectorStatus, JobKey, JobNote, LinkCondition, LinkStatus
from controller.apps.cli.app import app
from controller.apps.cli.network.feed import ask
from controller.apps.cli.shared import output
from controller.apps.cli.shared.output import Format
from controller.apps.cli.telemetry.commands import _awaited
from controller.apps.cli.telemetry.links import warn_of_silence
from controller.common.errors import ControllerError
from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError
from dataplane.nic.capture.pcap import PcapWriter
from dataplane.topology.values import LinkKey
from dataplane.wire.completion import Completion
from tests.collectors.history.samples import job
from tests.collectors.ingest.test_replay import NOON_NS, TRIANGLE, frame, write_capture
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import HANG_S

runner = CliRunner()
SLOW = Rule(name="slow", figure="delay_p99_ns", above=6000.0, match=("s2->*",))


def run(*arguments: str) -> str:
    done = runner.invoke(app, ["telemetry", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def a_collector() -> Collector:
    collector = Collector(build_topology(), VirtualClock())
    collector.receive(Reporter().stacked(long_way(tx_bytes=4096)))
    collector.receive(b"no report")
    for number in range(4):
        last = number > 0
        completion = Completion(3, number, int(last), 4000 if last else 10, repeated=number, ahead=2)
        collector.receive(
            Reporter(src="10.0.0.2" if last else "10.0.0.1", sequences={12: number - 1}).item(12, completion)
        )
    dead = LinkStatus(LinkCondition.DOWN, 3 * 10**9, "s1 no longer hears s3")
    collector.note_links({LinkKey("s2", "s3"): LinkStatus(LinkCondition.UP, 60 * 10**9), LinkKey("s1", "s3"): dead})
    collector.note_jobs({3: JobNote("resnet", epoch=1, cells=16)})
    return collector


@pytest.fixture(scope="module")
def feed() -> Iterator[str]:
    """Return the address of a collector's feed, served by a thread."""
    started, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve(address: str) -> None:
        collector = a_collector()
        events = EventService(collector, RuleSettings(rules=(SLOW,)))
        events.step()
        server = FeedServer(collector, FeedSettings(address=address), events)
        await server.start()
        started.set()
        await stop.wait()
        await server.stop()

    with TemporaryDirectory(prefix="feed") as folder:
        address = f"unix:{folder}/socket"
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(address),))
        thread.start()
        assert started.wait(HANG_S)
        yield address
        loop.call_soon_threadsafe(stop.set)
        thread.join(HANG_S)
        loop.close()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder, collector = tmp_path_factory.mktemp("history"), a_collector()
    settings = HistorySettings(folder=str(folder))
    writer, rows = HistoryWriter(settings), RowMaker(build_topology(), settings)
    wall_ns = 1_700_000_040 * 10**9
    writer.write(rows.batches(Observation(wall_ns, collector.snapshot(), collector.status().counters)), wall_ns)
    writer.close()
    return str(folder)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_capture(tmp_path_factory.mktemp("capture") / "reports.pcap")


def test_links_of_a_collector(feed: str) -> None:
    (line,) = (line for line in run("links", "--feed", feed).splitlines() if "s2->s3" in line)
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        *("s2->s3", "up", "60.0", "0.007", "0.007", "0.007", "0.007", "0.0", "0.1", "999.500"),
        *("", "0.0", "1", "stamps"),
    ]


def test_links_as_json_have_every_field(feed: str) -> None:
    document = json.loads(run("links", "--feed", feed, "--format", "json"))
    (link,) = (link for link in document if (link["src"], link["dst"]) == ("s2", "s3"))
    assert (link["delay_p50_ns"], link["source"], link["loss"]) == (7000, "stamps", None)
    assert (link["condition"], link["condition_age_ns"], link["cause"]) == ("up", 60 * 10**9, "")
    assert len(document) == 10


def test_dead_link_is_shown_as_down_without_healthy_figures(feed: str) -> None:
    line, why = (line for line in run("links", "--feed", feed).splitlines() if "s1->s3" in line)
    assert why == "s1->s3 is down for 3.0 s: s1 no longer hears s3"
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells[:3] == ["s1->s3", "down", "3.0"]
    assert set(cells[3:11]) == {""}
    assert cells[-1] == ""


def cells_of(shown: str) -> list[list[str]]:
    lines = [line.strip("│") for line in shown.splitlines() if "resnet" in line]
    return [[cell.strip() for cell in line.split("│")] for line in lines]


def test_awaited_rack_is_shown_with_the_host_it_waits_for() -> None:
    leaf = job(note=False)
    child = replace(leaf.children[0], key=ChildKey(3, "s1", 0, "s2"))
    root = replace(leaf, key=JobKey(3, "s1"), children=(child,))
    jobs = {state.key: state for state in (root, leaf)}
    assert [_awaited(state, jobs) for state in jobs.values()] == ["s2 (h2) 75 %", "h2 75 %"]


def test_jobs_that_switches_add_up_for(feed: str) -> None:
    assert cells_of(run("jobs", "--feed", feed)) == [
        ["3 resnet", "1", "s2", "", "3 of 16", "4.000", "4.000", "4.000", "6", "h2 75 %", "0.0"]
    ]
    (job,) = json.loads(run("jobs", "--feed", feed, "-f", "json"))
    assert (job["job"], job["switch"], job["name"], job["epoch"], job["repeated"]) == (3, "s2", "resnet", 1, 6)
    assert "children" not in job


@pytest.mark.parametrize("name", ["3", "resnet"])
def test_workers_that_a_job_waits_for_are_shown(feed: str, name: str) -> None:
    assert cells_of(run("jobs", name, "--feed", feed)) == [
        ["3 resnet", "s2", "h2", "75.0", "4.000", "4.000", "3.000", "3"],
        ["3 resnet", "s2", "h1", "25.0", "0.010", "0.010", "0.003", "1"],
    ]
    first, _ = csv.DictReader(io.StringIO(run("jobs", name, "--feed", feed, "-f", "csv")))
    assert (first["name"], first["child"], first["wait_caused_ns"]) == ("resnet", "h2", "3000000")


def test_job_top_shows_workers_waited_for_and_the_cause(feed: str) -> None:
    def top(*more: str) -> str:
        done = runner.invoke(app, ["job", "top", "--feed", feed, "--count", "1", *more], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert cells_of(top()) == [
        ["resnet", "s2", "h2", "75.0", "3.000", "not measured", "", "", "", "150.0"],
        ["resnet", "s2", "h1", "25.0", "0.003", "not measured", "", "", "", "150.0"],
    ]
    first, second = map(json.loads, top("resnet", "-f", "json").splitlines())
    assert (first["look"], first["worker"], first["cause"], first["wait_caused_ns"]) == (
        1,
        "h2",
        "not measured",
        3000000,
    )
    assert second["worker"] == "h1"
    (row,) = csv.DictReader(io.StringIO(top("3", "--rows", "1", "-f", "csv")))
    assert (row["job"], row["worker"]) == ("resnet", "h2")
    assert top("vgg") == "job vgg: no switch has reported items recently\n"


def test_unknown_job_is_one_line(feed: str) -> None:
    with pytest.raises(ControllerError, match=r"job vgg: no switch has .* recently; known jobs: 3 resnet"):
        run("jobs", "vgg", "--feed", feed)


def test_paths_as_csv(feed: str) -> None:
    (path,) = csv.DictReader(io.StringIO(run("paths", "--feed", feed, "--format", "csv")))
    assert (path["src"], path["dst_port"], json.loads(path["switches"])) == ("10.0.0.1", "6001", ["s1", "s2", "s3"])


def test_paths_for_people(feed: str) -> None:
    assert "10.0.0.1:5000->10.0.0.2:6001/17" in run("paths", "--feed", feed)


def test_reporters_and_status(feed: str) -> None:
    assert json.loads(run("reporters", "--feed", feed, "-f", "json"))[0]["received"] == 1
    counters = json.loads(run("status", "--feed", feed, "-f", "json"))
    assert [row for row in counters if row["counter"] != "feed bytes"] == [
        {"counter": "events", "count": 1},
        {"counter": "items reported", "count": 4},
        {"counter": "malformed", "count": 1},
        {"counter": "malformed report group", "count": 1},
        {"counter": "records", "count": 3},
        {"counter": "reports", "count": 6},
    ]
    errors = runner.invoke(app, ["telemetry", "status", "--feed", feed]).stderr
    assert errors.startswith("last problem: report group at byte 0")


def test_events_that_are_kept(feed: str) -> None:
    (line,) = (line for line in run("events", "--feed", feed).splitlines() if "slow" in line)
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells[1:] == ["raised", "slow", "s2->s3", "delay_p99_ns", "7000", "6000", ""]
    (event,) = json.loads(run("events", "--feed", feed, "-f", "json"))
    assert abs(datetime.fromisoformat(event["time"]).timestamp() - time.time()) < 60
    assert ("delay_p99_ns", 7000) in [(row["figure"], row["value"]) for row in event["evidence"]]


def test_event_is_acknowledged_with_a_note(feed: str) -> None:
    run("acknowledge", "slow", "s2->s3", "--note", "on it", "--feed", feed)
    (event,) = json.loads(run("events", "--feed", feed, "-f", "json"))
    assert event["note"] == f"{getpass.getuser()}: on it"
    run("acknowledge", "slow", "s2->s3", "--withdraw", "--feed", feed)
    (event,) = json.loads(run("events", "--feed", feed, "-f", "json"))
    assert event["note"] is None
    with pytest.raises(FeedError, match=r"rule 'slow' has no open event on s9$"):
        run("acknowledge", "slow", "s9", "--feed", feed)


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        (Format.TABLE, "raised  slow  s2->s3  delay_p99_ns  7000  6000"),
        (Format.CSV, "raised,slow,s2->s3,delay_p99_ns,7000.0,6000.0,"),
        (Format.JSON, '"phase": "raised", "rule": "slow", "subject": "s2->s3"'),
    ],
)
def test_events_as_they_come(feed: str, form: Format, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def say_once(line: str) -> None:
        lines.append(line)
        if "slow" in line:
            raise KeyboardInterrupt

    monkeypatch.setattr("controller.apps.cli.telemetry.commands.typer.echo", say_once)
    run("events", "--feed", feed, "--follow", "--format", form)
    assert wanted in lines[-1]
    assert len(lines) == (2 if form is Format.CSV else 1)


def test_rules_are_shown_and_replaced(feed: str, tmp_path: Path) -> None:
    assert "│ slow │ link  │ delay_p99_ns │ above 6000 │         │ 0      │ s2->* │" in run("rules", "--feed", feed)
    file = tmp_path / "rules.yaml"
    busy, idle = "{name: busy, figure: utilisation, change: {learn: 30}}", "{name: idle, figure: samples, below: 1}"
    file.write_text(f"rules: [{busy}, {idle}]\n")
    output = run("rules", "--feed", feed, "--set", str(file))
    assert ("level changes" in output, "below 1" in output) == (True, True)
    assert [rule["name"] for rule in json.loads(run("rules", "--feed", feed, "-f", "json"))] == ["busy", "idle"]
    file.write_text("rules: [{name: odd, figure: nothing, above: 1}]\n")
    with pytest.raises(ConfigError, match="a link has no figure 'nothing'"):
        run("rules", "--feed", feed, "--set", str(file))
    ask(feed, lambda client: client.set_rules((SLOW,)))


def test_top_shows_the_busiest_first(feed: str) -> None:
    output = run("top", "--feed", feed, "--rows", "2", "--interval", "0.05", "--count", "2")
    links = re.findall(r"│ (\w+->\w+)", output)
    assert links[0] == links[2] == "s2->s3"
    assert len(links) == 4
    assert output.count("1 flows; links by utilisation") == 2
    assert "s2->s3" in run("top", "--feed", feed, "--by", "loss", "--count", "1")
    looks = [json.loads(line) for line in run("top", "--feed", feed, "--count", "2", "-f", "json").splitlines()]
    assert {look["look"] for look in looks} == {1, 2}
    header, *rows = run("top", "--feed", feed, "--count", "2", "-f", "csv").splitlines()
    assert header.startswith("look,")
    assert len(rows) == len(looks)


def test_a_capture_replayed(capture: Path, tmp_path: Path) -> None:
    rule = "{name: slow, figure: delay_p50_ns, above: 100000}"
    (tmp_path / "collector.yaml").write_text(f"topology: {tmp_path}/triangle.yaml\nevents: {{rules: [{rule}]}}\n")
    (tmp_path / "triangle.yaml").write_text(TRIANGLE)
    output = run("replay", str(capture), "--settings", str(tmp_path / "collector.yaml"))
    assert output.startswith("frames: 300 in 2.990 s\nbroken frames: 0\nreports: 300\nevents: 2\n")
    tables = dict(re.findall(r"\n\n(\w+)\n(.*?)└", output, re.DOTALL))
    assert list(tables) == ["reporters", "links", "flows", "events"]
    assert re.search(r"│ 13 +│ s3 +│ 300 +│ 0 ", tables["reporters"])
    assert re.search(r"│ h1:5000 │ h2:6001 │ s1 s2 s3 │", tables["flows"])
    assert [phase for phase in ("raised", "cleared") if phase in tables["events"]] == ["raised", "cleared"]
    document = json.loads(run("replay", str(capture), "--settings", str(tmp_path / "collector.yaml"), "-f", "json"))
    assert (document["frames"], document["reports"], document["counters"]["events"]) == (300, 300, 2)
    assert [event["phase"] for event in document["events"]] == ["raised", "cleared"]
    assert document["drops"] == []


def test_a_capture_of_items_replayed(tmp_path: Path) -> None:
    (tmp_path / "triangle.yaml").write_text(TRIANGLE)
    sequences: dict[int, int] = {}
    with PcapWriter(tmp_path / "items.pcap") as file:
        for number in range(40):
            late = number % 4 > 0
            item = Completion(3, number, int(late), 4000 if late else 10, repeated=number % 2, ahead=2)
            reporter = Reporter(src="10.0.0.2" if late else "10.0.0.1", sequences=sequences)
            file.write(frame(reporter.item(13, item)), NOON_NS + number * 10**8)
    output = run("replay", str(tmp_path / "items.pcap"), "--topology", str(tmp_path / "triangle.yaml"))
    assert "items reported: 40\n" in output
    assert re.search(r"\njobs\n(.|\n)*│ 3 +│ s3 +│ 40 +│ 20 +│ 3 +│ 4 +│ h2 +│", output)


def test_replay_writes_a_history_if_asked(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "triangle.yaml").write_text(TRIANGLE)
    folder = str(tmp_path / "history")
    run("replay", str(capture), "--topology", str(tmp_path / "triangle.yaml"), "--history", folder)
    assert json.loads(run("query", "-d", folder, "-f", "json", "select sum(received) as n from reporters")) == [
        {"n": 300}
    ]


def test_a_replay_needs_to_know_the_topology(capture: Path) -> None:
    done = runner.invoke(app, ["telemetry", "replay", str(capture)])
    assert done.exit_code == 2
    assert "either --settings or --topology" in done.stderr


def test_unreachable_collector_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match=r"collector at unix:.*none: cannot connect: No such file or directory$"):
        run("links", "--feed", f"unix:{tmp_path}/none")


def test_a_query_in_every_format(history: str) -> None:
    asked = ("query", "--history", history, "--format")
    wanted = "select src, samples, time, loss, switches from links join paths using (time) where links.dst = 's3' "
    statement = wanted.replace("src,", "links.src,").replace(" samples", " links.samples").replace("loss", "links.loss")
    assert json.loads(run(*asked, "json", statement + "and links.src = 's2'")) == [
        {"src": "s2", "samples": 1, "time": "2023-11-14T22:14:00+00:00", "loss": None, "switches": ["s1", "s2", "s3"]}
    ]
    assert run(*asked, "csv", "select 1.5 as x, null as y, [1, 2] as z, sum(received) as w from reporters") == (
        'x,y,z,w\n1.5,,"[1, 2]",5\n'
    )
    assert json.loads(run(*asked, "json", "select sum(received) as n, 'nan'::float as x from reporters")) == [
        {"n": 5, "x": None}
    ]
    assert json.loads(run(*asked, "json", "from links where src = 'none'")) == []
    table = run(*asked, "table", "select time, {'a': 1} as s, 0.1 + 0.2 as x from links limit 1")
    assert "2023-11-14 22:14:00.000 │ a=1 │ 0.3" in table


def test_a_table_too_wide_has_a_line_for_each_column(history: str) -> None:
    output = run("query", "--history", history, "select * from links where src = 's2' and dst = 's3'")
    assert re.search(r"│ dst +│ s3 ", output)
    assert re.search(r"│ delay_mean_ns +│ \d+", output)
    assert "…" not in output


def test_long_table_is_cut_with_a_note(history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "TABLE_ROWS", 3)
    done = runner.invoke(app, ["telemetry", "query", "--history", history, "from range(5)"])
    assert done.stdout.count("│") == 3 * 2
    assert done.stderr == "only the first 3 rows are shown; use --format csv or json for all\n"


def test_a_wrong_query_is_one_line(history: str) -> None:
    with pytest.raises(HistoryError, match=r"^Parser Error: [^\n]*$"):
        run("query", "--history", history, "selec 1")


def test_a_broken_file_is_named_on_stderr(history: str, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    broken = tmp_path / "links" / "00000001-00000001.1000000000ns.5.parquet"
    broken.write_bytes(b"PAR1")
    done = runner.invoke(
        app, ["telemetry", "query", "--history", str(tmp_path), "-f", "csv", "select count(*) from links"]
    )
    assert (done.exit_code, done.stdout) == (0, "count_star()\n0\n")
    assert done.stderr.startswith(f"millrace telemetry: {broken}: left out: ")


def test_collector_without_reports_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = CollectorStatus(0, {}, None)
    warn_of_silence(quiet)
    assert capsys.readouterr().err.startswith("no report has arrived at this collector: no flow carries telemetry, ")
    warn_of_silence(replace(quiet, counters={"reports": 1}))
    assert not capsys.readouterr().err
