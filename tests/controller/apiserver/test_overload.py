"""An overloaded API server reports it in health, metrics and `millrace status`."""

from __future__ import annotations

import asyncio

import httpx

from controller.apiserver.overload import SHED
from controller.apiserver.resources import Pod
from controller.apps.up.health import check_api
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served
from tests.waiting import until


async def body_of(served: Served, path: str) -> str:
    transport = httpx.AsyncHTTPTransport(uds=served.socket.removeprefix("unix:"))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
        return (await http.get(path)).text


def test_server_without_room_for_watches_reports_it(play: Play) -> None:
    async def act(served: Served) -> None:
        reader, writer = await asyncio.open_unix_connection(served.socket.removeprefix("unix:"))
        writer.write(b"GET /v1/nodes?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"BOOKMARK")
        warning = f"watches: 1 of at most 1; {SHED['watches refused']}"

        async def is_overloaded() -> bool:
            return any(warning in line for line in (await served.client.health()).overloads)

        await until(is_overloaded, "no overload is reported", poll_s=0.05)
        metrics = await body_of(served, "/metrics")
        assert "millrace_api_overloaded 1.0" in metrics
        assert f'millrace_api_overload_seconds{{advice="{SHED["watches refused"]}",cause="watches"}}' in metrics
        health = await check_api(served.socket)
        assert health.ok
        assert warning in health.text
        writer.close()

    play(act, watches=1)


def test_connections_beyond_the_limit_are_counted(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.health()
        path = served.socket.removeprefix("unix:")
        opened = [await asyncio.open_unix_connection(path) for _ in range(4)]
        for _, writer in opened:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answers = [await reader.readline() for reader, _ in opened]
        assert b"HTTP/1.1 503 Service Unavailable\r\n" in answers
        for _, writer in opened:
            writer.close()

        async def are_counted() -> bool:
            metrics = await body_of(served, "/metrics")
            assert "millrace_api_connections_refused_total" in metrics
            return "millrace_api_connections_refused_total 0" not in metrics

        await until(are_counted, "the refused connections are not counted", poll_s=0.05)

    play(act, connections=4)


def test_too_frequent_requests_are_counted_and_reported(play: Play) -> None:
    async def act(served: Served) -> None:
        warning = f"; {SHED['requests over the rate']}"
        async with await served.client_of(Role.USER) as eager:

            async def is_overloaded() -> bool:
                await asyncio.gather(*(eager.of(Pod).list() for _ in range(60)), return_exceptions=True)
                return any(warning in line for line in (await served.client.health()).overloads)

            await until(is_overloaded, "no overload is reported", poll_s=0.1)

    play(act, user_requests_per_s=20)
