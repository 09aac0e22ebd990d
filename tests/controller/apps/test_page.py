"""A recorded history in the page, with nothing else running."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from collectors.collector import Collector
from collectors.history.files import TOPOLOGY_FILE
from collectors.history.recorder import HistoryRecorder
from collectors.history.rows import Observation
from collectors.history.writer import HistoryWriter
from controller.apps.page import page_of, recorded_view
from controller.common.errors import ApiError
from dataplane.clock import MonotonicClock
from dataplane.local.deadline import local_timeout
from dataplane.topology.file import load_topology
from tests.collectors.history.samples import NOON_S, S_NS, link, maker, snapshot
from tests.collectors.history.test_writer import settings
from tests.collectors.reports import build_topology
from tests.controller.apiserver.api_server import WAIT_S
from tests.controller.apiserver.view.test_network import frame_when


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a history of five seconds, and its topology beside the rows."""
    history = tmp_path / "history"
    history.mkdir()
    HistoryRecorder(
        Collector(build_topology(), MonotonicClock()), build_topology(), settings(history), lambda: 0, pytest.fail
    ).close()
    writer, rows = HistoryWriter(settings(history)), maker(history)
    for second in range(5):
        at_ns = (NOON_S + second) * S_NS
        writer.write(rows.batches(Observation(at_ns, snapshot([link(utilisation=0.5)]))), at_ns)
    writer.close()
    return tmp_path


def test_a_history_names_its_topology(folder: Path) -> None:
    named, recorded = load_topology(folder / "history" / TOPOLOGY_FILE), build_topology()
    assert (named.name, named.switches) == (recorded.name, recorded.switches)
    assert named.directed_links == recorded.directed_links


def test_a_recorded_history_is_served_alone(folder: Path) -> None:
    async def main() -> None:
        async with local_timeout(WAIT_S, "a test"), page_of(recorded_view(folder), 0) as address:
            url, _, code = address.partition("/#")
            headers = {"Origin": url, "Sec-Fetch-Site": "same-origin", "X-Millrace": "page"}
            async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
                assert (await client.post("/v1/view/session", json={"code": code})).status_code == 200
                me = (await client.get("/v1/view/me")).json()
                assert me["recorded"] == [NOON_S * S_NS, (NOON_S + 4) * S_NS]
                beat = await frame_when(client, 6, lambda _: True)
                assert beat["sources"] == []
                past = {"from": NOON_S * S_NS, "to": (NOON_S + 5) * S_NS, "speed": 100}
                replay = await client.get("/v1/view/replay", params=past)
                assert replay.status_code == 200
                assert replay.content.count(b'"mode":"replay"') == 1

    asyncio.run(main())


def test_a_folder_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="neither a collector's history, nor is one in its folder history"):
        recorded_view(tmp_path)
    (tmp_path / "links").mkdir()
    with pytest.raises(ApiError, match="says nothing of its topology: name it with --topology"):
        recorded_view(tmp_path)
    assert recorded_view(tmp_path, "abilene").topology == "abilene"
