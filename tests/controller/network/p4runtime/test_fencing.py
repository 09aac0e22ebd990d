"""Sessions of controllers in pairs: the election id is a fencing token, which the switch enforces."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.common.errors import LostLeaseError, SessionError
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import fabric_program, load_schema
from dataplane.clock import VirtualClock
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from tests.waiting import finish_within

BOUND_S = 20.0


class Permit:
    """The lease of a controller as its sessions see it."""

    is_held = True

    def __call__(self) -> None:
        """Raise LostLeaseError unless it is held."""
        if not self.is_held:
            raise LostLeaseError("lease controller: a does not hold it")


def session(address: str, token: int, permit: Permit) -> GrpcSession:
    schema = load_schema(*fabric_program())
    target = Target("s1", address, 1)
    return GrpcSession(target, schema, election_id=token << 64, timeout_s=BOUND_S, permit=permit)


def test_switch_fences_off_a_lower_token(tmp_path: Path) -> None:
    switch = Switch(1, [PortSettings(number) for number in range(1, 5)], VirtualClock())
    address = f"unix:{tmp_path}/p4rt.sock"

    async def act() -> None:
        permit = Permit()
        old, new, alone = session(address, 5, permit), session(address, 6, Permit()), session(address, 7, Permit())
        await old.connect()
        await old.install_pipeline()
        before = await old.read()
        permit.is_held = False
        with pytest.raises(SessionError, match="a does not hold it"):
            await old.write(())
        permit.is_held = True  # it was stopped right after it had looked
        await new.connect()
        with pytest.raises(SessionError, match="is not the primary"):
            await old.write(())
        assert "another controller became primary" in str(await old.wait_lost())
        await old.close()
        await new.close()
        late = session(address, 5, permit)
        with pytest.raises(SessionError, match="a newer token than this controller's"):
            await late.connect()
        await late.close()
        await alone.connect()
        assert await alone.read() == before
        await alone.close()

    with P4RuntimeServer(P4RuntimeCore(switch), [address]):
        asyncio.run(finish_within(act(), BOUND_S))


def test_token_is_above_every_id_of_a_start(tmp_path: Path) -> None:
    switch = Switch(1, [PortSettings(1)], VirtualClock())
    address = f"unix:{tmp_path}/p4rt.sock"

    async def act() -> None:
        schema = load_schema(*fabric_program())
        before = GrpcSession(Target("s1", address, 1), schema, election_id=2**63 - 1, timeout_s=BOUND_S)
        await before.connect()
        paired = session(address, 1, Permit())
        await paired.connect()
        assert await paired.install_pipeline()
        for one in (before, paired):
            await one.close()

    with P4RuntimeServer(P4RuntimeCore(switch), [address]):
        asyncio.run(finish_within(act(), BOUND_S))
