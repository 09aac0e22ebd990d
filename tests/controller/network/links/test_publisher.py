"""Publishing the status of links ends when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from collectors.values import LinkStatus
from controller.network.links.publisher import LinkStatusPublisher, Subscriber
from dataplane.topology.values import LinkKey


def test_publisher_ends_as_an_answer_arrives() -> None:
    async def act() -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()

        async def send(_: Mapping[LinkKey, LinkStatus]) -> None:
            asked.set()
            await answer

        publisher = LinkStatusPublisher(dict)
        publishing = asyncio.create_task(publisher.publish_to(Subscriber("somebody", send, print)))
        await asked.wait()
        answer.set_result(None)
        await asyncio.sleep(0)  # the answer is there, and has not been read
        publishing.cancel()
        done, _ = await asyncio.wait([publishing], timeout=30)
        assert done == {publishing}

    asyncio.run(act())
