"""The controller's status over gRPC, unknown values included; one line for an unreachable server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.common.errors import ControllerError
from controller.network.status.service import ControllerClient, ControllerClientSettings, StatusServer
from controller.network.status.values import ControllerStatus, SwitchProblem

FRESH = ControllerStatus(2, ("s1",), (SwitchProblem("s2", "connect: cannot connect"),), None, 0, False, 0, None, 3)
SETTLED = ControllerStatus(2, ("s1", "s2"), (), 7, 0, True, 1, "the path server speaks another version", 9)


@pytest.mark.parametrize("status", [FRESH, SETTLED])
def test_a_status_crosses_the_service(tmp_path: Path, status: ControllerStatus) -> None:
    async def use() -> ControllerStatus:
        address = f"unix:{tmp_path}/controller.sock"
        server = StatusServer(address, lambda: status)
        await server.start()
        try:
            async with ControllerClient(ControllerClientSettings(address=address)) as client:
                return await client.status()
        finally:
            await server.stop()

    assert asyncio.run(use()) == status


def test_unreachable_server_is_one_line(tmp_path: Path) -> None:
    async def use() -> None:
        async with ControllerClient(ControllerClientSettings(address=f"unix:{tmp_path}/x.sock")) as client:
            await client.status()

    with pytest.raises(ControllerError, match=r"controller at unix:.*: cannot connect: No such file or directory"):
        asyncio.run(use())
