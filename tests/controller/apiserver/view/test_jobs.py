"""Jobs in the page: a real job service and switches' reports at a real collector, through the API server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from msgspec.structs import replace

from collectors.collector import Collector
from collectors.counters import Counters
from collectors.feed.server import FeedServer, FeedSettings
from collectors.history.rows import Observation
from collectors.history.writer import HistoryWriter
from collectors.jobs.accounts import JobAccounts
from collectors.settings import JobWatchSettings
from collectors.values import JobKey, JobState
from controller.apiserver.settings import ViewSettings
from controller.apiserver.view.jobs import jobs_value
from controller.apiserver.view.past import Past
from controller.apiserver.view.state import NetworkView
from controller.cluster.network_state.settings import NetworkStateSettings
from dataplane.clock import MonotonicClock
from dataplane.local.deadline import local_timeout
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.families import leaf_spine
from dataplane.topology.file import dumps
from dataplane.topology.values import Topology
from dataplane.wire.completion import Completion
from tests.collectors.history.samples import NOON_S, S_NS, job, maker, snapshot
from tests.collectors.history.test_writer import settings as history_settings
from tests.collectors.reports import Reporter, build_topology
from tests.controller.apiserver.api_server import WAIT_S, serving, settings_in
from tests.controller.apiserver.view.test_browsers import browser, signed_in
from tests.controller.network.aggregation.service.serving_jobs import TOPOLOGY, run_service

MS = 1_000_000
RACKS = leaf_spine(1, 2, 2)


def states_of(topology: Topology, reports: Sequence[tuple[str, str, Completion]]) -> dict[JobKey, JobState]:
    """Return the states of jobs from reports of a switch, with the host or switch that was last."""
    accounts = JobAccounts(topology, JobWatchSettings(), Counters())
    for number, (switch, last, completion) in enumerate(reports):
        host = topology.host.get(last)
        address = host.ipv4 if host is not None else switch_ipv4(topology.switch[last].node_id)
        accounts.add(topology.switch[switch].node_id, completion, address, number * 10 * MS)
    return accounts.states(len(reports) * 10 * MS)


def test_the_slowest_worker_is_found_in_its_rack() -> None:
    reports = [("leaf2", "h3", Completion(7, item, 0, 900, 1, 0, leaf=True)) for item in range(10)]
    reports += [("spine1", "leaf2", Completion(7, item, 1, 950, 0, 0)) for item in range(10)]
    (value,) = jobs_value((), states_of(RACKS, reports), RACKS.host, 0)
    assert (value["name"], value["state"], value["root"]) == ("job 7", None, "spine1")
    assert (value["slowest"]["name"], value["slowest"]["switch"]) == ("h3", "leaf2")
    assert value["slowest"]["wait_caused_ns"] == 900_000
    assert {one["switch"]: one["repeated"] for one in value["at"]} == {"leaf2": 10, "spine1": 0}
    assert [member["host"] for member in value["members"]] == ["h3"]


def test_a_job_has_its_service_state_and_reported_figures() -> None:
    async def main(folder: Path) -> None:
        file = folder / "racks.yaml"
        file.write_text(dumps(TOPOLOGY), "utf-8")
        collector = Collector(TOPOLOGY, MonotonicClock())
        feed = FeedServer(collector, FeedSettings(address=f"unix:{folder}/feed"))
        await feed.start()
        state = NetworkStateSettings(feed=f"unix:{folder}/feed", path_server=None, interval_ns=20 * MS)
        with run_service(folder) as service:
            await asyncio.to_thread(service.together, "h1", "h2", job="resnet")
            view = ViewSettings(topology=str(file), network_state=state, job_service=service.address)
            async with serving(replace(settings_in(folder), view=view), folder) as served, browser(served) as client:
                await signed_in(served, client)
                report = asyncio.create_task(_report(collector))
                value = await _job_when(client, lambda value: value["state"] == "running" and value["items_per_s"])
                report.cancel()
        await feed.stop()
        assert (value["name"], value["epoch"], value["workers"]) == ("resnet", 1, 2)
        assert value["root"] == value["slowest"]["switch"] == value["switches"][0]
        assert value["slowest"]["name"] == "h2"
        members = {member["host"]: member for member in value["members"]}
        assert {host: member["state"] for host, member in members.items()} == {"h1": "working", "h2": "working"}
        assert members["h2"]["switch"] == value["root"]
        assert members["h2"]["wait_caused_ns"] == 250_000
        assert members["h1"]["wait_caused_ns"] is None

    with TemporaryDirectory(prefix="jobs") as name:
        asyncio.run(main(Path(name)))


async def _report(collector: Collector) -> None:
    """Report items of job 1 at its switch, for which h2 is always the last."""
    reporter = Reporter(str(TOPOLOGY.host["h2"].ipv4), str(TOPOLOGY.host["h1"].ipv4))
    number = 0
    while True:
        collector.receive(reporter.item(TOPOLOGY.switch["leaf1"].node_id, Completion(1, number, 1, 250, 0, 0)))
        number += 1
        await asyncio.sleep(0.01)


async def _job_when(client: httpx.AsyncClient, holds: Any) -> dict[str, Any]:
    async with local_timeout(WAIT_S, "a job"):
        while True:
            answer = (await client.get("/v1/view/jobs")).json()
            found = next((value for value in answer["jobs"] if holds(value)), None)
            if found is not None:
                return dict(found)
            await asyncio.sleep(0.05)


def test_jobs_of_the_past_come_from_the_history(tmp_path: Path) -> None:
    writer, rows = HistoryWriter(history_settings(tmp_path)), maker(tmp_path)
    for second in range(3):
        states = {state.key: state for state in (job(100 * (1 + second), last=30 * (1 + second)),)}
        at_ns = (NOON_S + second) * S_NS
        seen = Observation(at_ns, dataclasses.replace(snapshot(), jobs=states))
        writer.write(rows.batches(seen), at_ns)
    writer.close()
    past = Past(tmp_path, NetworkView(build_topology(), lambda: 0, []))
    held = asyncio.run(past.jobs((NOON_S + 1) * S_NS))
    assert {key: (state.name, state.reported) for key, state in held.items()} == {JobKey(3, "s2"): ("resnet", 200)}
    (state,) = held.values()
    assert state.children[0].key.name == "h2"
    assert asyncio.run(past.jobs((NOON_S - 100) * S_NS)) == {}
    past.close()
