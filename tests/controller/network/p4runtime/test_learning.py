"""Per-entry counters and digests of bmv2; tests of the store cover the built-in switch."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.common.errors import SessionError
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import (
    FABRIC_AGGREGATION,
    Bundling,
    LearningSession,
    fabric_program,
    load_schema,
)
from controller.network.tables.entities import Update, Verb, key_of
from controller.network.tables.store import DIGEST, OUTCOME_NAMES, OUTCOMES, PACKETS, Copied, mark_entity, name_entity
from dataplane.store.names import Segment
from tests.controller.network.switch_servers import Bmv2, address
from tests.waiting import finish_within, until

BOUND_S = 60.0


pytestmark = pytest.mark.bmv2


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[str]:
    """Return the address of a switch with device id 1."""
    if shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not on the PATH")
    machine = Bmv2(1, address(tmp_path, "s1"))
    machine.start()
    yield address(tmp_path, "s1")
    machine.stop()


async def connected(switch: str) -> GrpcSession:
    session: GrpcSession

    async def connects() -> bool:
        nonlocal session
        session = GrpcSession(Target("s1", switch, 1), load_schema(*fabric_program(FABRIC_AGGREGATION)))
        try:
            await session.connect()
        except SessionError:
            await session.close()
            return False
        return True

    await until(connects, "the switch takes no session", limit_s=BOUND_S, poll_s=0.05)
    return session


def test_entry_counters_are_read_and_digests_requested_again(switch: str) -> None:
    entities = [name_entity(Copied(Segment(5, 1), 3, 9, 77, 4)), mark_entity(88)]

    async def scene() -> None:
        session = await connected(switch)
        assert isinstance(session, LearningSession)
        await session.install_pipeline()
        await session.write(tuple(Update(Verb.INSERT, key_of(entity), entity) for entity in entities))
        assert await session.packets(PACKETS) == {key_of(entity): 0 for entity in entities}
        assert await session.counts(OUTCOMES) == [0] * len(OUTCOME_NAMES)
        for _ in range(2):
            await session.learn(DIGEST, Bundling(messages=64, wait_ns=10_000_000), print)
        await session.close()

    asyncio.run(finish_within(scene(), BOUND_S))
