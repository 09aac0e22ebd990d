"""The cost map below /alto of the API server: with a token, from a running collector, next to resources."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from msgspec.structs import replace

from collectors.collector import Collector
from collectors.feed.server import FeedServer, FeedSettings
from controller.apiserver.settings import ApiSettings
from controller.apiserver.tokens import TokenRequest
from controller.cluster.alto.settings import AltoView
from controller.cluster.network_state.settings import NetworkStateSettings
from dataplane.clock import MonotonicClock
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from dataplane.topology.families import from_text
from tests.controller.apiserver.api_server import WAIT_S, Served, serving, settings_in

FABRIC = "ring:switches=3,hosts=1"
FILTER = {"content-type": "application/alto-costmapfilter+json"}


def settings(folder: Path) -> ApiSettings:
    state = NetworkStateSettings(feed=f"unix:{folder}/feed", path_server=None, interval_ns=10_000_000)
    return replace(settings_in(folder), alto=AltoView(topology=FABRIC, network_state=state))


async def headers(served: Served, role: Role, subject: str | None = None) -> dict[str, str]:
    made = await served.client.create_token(TokenRequest(name=role.value, role=role, subject=subject))
    return {"authorization": f"Bearer {made.token}"}


async def look(served: Served, feed: FeedServer) -> None:
    async with httpx.AsyncClient(base_url=served.url) as client:
        assert (await client.get("/alto/directory")).status_code == 401
        node = await client.get("/alto/directory", headers=await headers(served, Role.NODE, "h1"))
        assert (node.status_code, node.headers["content-type"]) == (403, "application/problem+json")
        client.headers.update(await headers(served, Role.USER))
        resources = (await client.get("/alto/directory")).json()["resources"]
        uri = resources["hosts-delay-ow-mean-num"]["uri"]
        assert uri == "/alto/costmap/hosts/delay-ow-mean-num"
        away = await client.get(uri)
        assert (away.status_code, "sent nothing yet" in away.text) == (503, True)
        await feed.start()
        while (answer := await client.get(uri)).status_code == 503:
            pass
        assert answer.headers["content-type"] == "application/alto-costmap+json"
        assert set(answer.json()["cost-map"]) == {host.name for host in from_text(FABRIC).hosts}
        bad = await client.post("/alto/costmap/hosts/filtered", content=b"{}", headers=FILTER)
        assert (bad.status_code, bad.headers["content-type"]) == (400, "application/alto-error+json")
        assert (await client.get("/v1/nodes")).status_code == 200


def test_the_cost_map_is_served_behind_the_gate() -> None:
    async def main() -> None:
        with TemporaryDirectory(prefix="api") as name:
            folder = Path(name)
            feed = FeedServer(
                Collector(from_text(FABRIC), MonotonicClock()), FeedSettings(address=f"unix:{folder}/feed")
            )
            try:
                async with local_timeout(WAIT_S, "a test"), serving(settings(folder), folder) as served:
                    await look(served, feed)
            finally:
                await feed.stop()

    asyncio.run(main())
