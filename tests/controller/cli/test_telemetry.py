"""`millrace telemetry`: a collector that runs, asked; a history, queried; each failure one line."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from collectors.collector import Collector
from collectors.errors import FeedError, HistoryError
from collectors.feed import FeedServer, FeedSettings
from collectors.history.rows import Observation, RowMaker
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from controller.cli import output
from controller.cli.app import app
from dataplane.clock import VirtualClock
from tests.collectors.reports import Reporter, build_topology, long_way

runner = CliRunner()


def run(*arguments: str) -> str:
    done = runner.invoke(app, ["telemetry", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def a_collector() -> Collector:
    collector = Collector(build_topology(), VirtualClock())
    collector.receive(Reporter().stacked(long_way(tx_bytes=4096)))
    collector.receive(b"no report")
    return collector


@pytest.fixture(scope="module")
def feed() -> Iterator[str]:
    """Return the address of a collector's feed, served by a thread."""
    started, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve(address: str) -> None:
        server = FeedServer(a_collector(), FeedSettings(address=address))
        await server.start()
        started.set()
        await stop.wait()
        await server.stop()

    with TemporaryDirectory(prefix="feed") as folder:
        address = f"unix:{folder}/socket"
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(address),))
        thread.start()
        assert started.wait(20)
        yield address
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
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


def test_links_of_a_collector(feed: str) -> None:
    (line,) = (line for line in run("links", "--feed", feed).splitlines() if "s2->s3" in line)
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        *("s2->s3", "0.007", "0.007", "0.007", "0.007", "0.0", "0.1", "999.500"),
        *("", "0.0", "1", "stamps"),
    ]


def test_links_as_json_have_every_field(feed: str) -> None:
    found = json.loads(run("links", "--feed", feed, "--format", "json"))
    (link,) = (link for link in found if (link["src"], link["dst"]) == ("s2", "s3"))
    assert (link["delay_p50_ns"], link["source"], link["loss"]) == (7000, "stamps", None)
    assert len(found) == 10


def test_paths_as_csv(feed: str) -> None:
    (path,) = csv.DictReader(io.StringIO(run("paths", "--feed", feed, "--format", "csv")))
    assert (path["src"], path["dst_port"], json.loads(path["switches"])) == ("10.0.0.1", "6001", ["s1", "s2", "s3"])


def test_paths_for_people(feed: str) -> None:
    assert "10.0.0.1:5000->10.0.0.2:6001/17" in run("paths", "--feed", feed)


def test_reporters_and_status(feed: str) -> None:
    assert json.loads(run("reporters", "--feed", feed, "-f", "json"))[0]["received"] == 1
    assert json.loads(run("status", "--feed", feed, "-f", "json")) == [
        {"counter": "malformed", "count": 1},
        {"counter": "malformed report group", "count": 1},
        {"counter": "records", "count": 3},
        {"counter": "reports", "count": 2},
    ]
    said = runner.invoke(app, ["telemetry", "status", "--feed", feed]).stderr
    assert said.startswith("last problem: report group at byte 0")


def test_nobody_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match=r"collector at unix:.*UNAVAILABLE"):
        run("links", "--feed", f"unix:{tmp_path}/none")


def test_a_query_in_every_format(history: str) -> None:
    asked = ("query", "--history", history, "--format")
    wanted = "select src, samples, time, loss, switches from links join paths using (time) where links.dst = 's3' "
    statement = wanted.replace("src,", "links.src,").replace(" samples", " links.samples").replace("loss", "links.loss")
    assert json.loads(run(*asked, "json", statement + "and links.src = 's2'")) == [
        {"src": "s2", "samples": 1, "time": "2023-11-14T22:14:00+00:00", "loss": None, "switches": ["s1", "s2", "s3"]}
    ]
    assert run(*asked, "csv", "select 1.5 as x, null as y, [1, 2] as z, sum(received) as w from reporters") == (
        'x,y,z,w\n1.5,,"[1, 2]",1\n'
    )
    assert json.loads(run(*asked, "json", "select sum(received) as n, 'nan'::float as x from reporters")) == [
        {"n": 1, "x": None}
    ]
    assert json.loads(run(*asked, "json", "from links where src = 'none'")) == []
    table = run(*asked, "table", "select time, {'a': 1} as s, 0.1 + 0.2 as x from links limit 1")
    assert "2023-11-14 22:14:00.000 │ a=1 │ 0.3" in table


def test_a_long_table_is_cut_and_says_so(history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "TABLE_ROWS", 3)
    done = runner.invoke(app, ["telemetry", "query", "--history", history, "from range(5)"])
    assert done.stdout.count("│") == 3 * 2
    assert done.stderr == "only the first 3 rows are shown; --format csv or json has all\n"


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
