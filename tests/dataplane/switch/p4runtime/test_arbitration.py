"""Sections 5 and 11: primaries, notifications, and the right to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4r

from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeError, StreamSession
from dataplane.switch.p4runtime.arbitration import MAX_CLIENTS, MAX_ROLES

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

DEVICE = 7
Mail = list[p4r.StreamMessageResponse]


def hello(election_id: int | None, role: str = "", device_id: int = DEVICE) -> p4r.StreamMessageRequest:
    update = p4r.MasterArbitrationUpdate(device_id=device_id)
    if role:
        update.role.name = role
    if election_id is not None:
        update.election_id.high, update.election_id.low = election_id >> 64, election_id & ((1 << 64) - 1)
    return p4r.StreamMessageRequest(arbitration=update)


class Controller:
    def __init__(self, core: P4RuntimeCore, election_id: int | None, role: str = "") -> None:
        self.mail: Mail = []
        self.role = role
        self.session: StreamSession = core.open_stream(self.mail.append)
        self.bid(election_id)

    def bid(self, election_id: int | None) -> None:
        self.session.handle(hello(election_id, self.role))

    def news(self) -> list[tuple[Code, int | None]]:
        """Return (status, highest election id) of the messages since the last call."""
        codes: list[tuple[Code, int | None]] = []
        for message in self.mail:
            update = message.arbitration
            assert update.device_id == DEVICE
            assert update.role.name == self.role
            highest = update.election_id.high << 64 | update.election_id.low if update.HasField("election_id") else None
            codes.append((Code(update.status.code), highest))
        self.mail.clear()
        return codes


def may_write(core: P4RuntimeCore, election_id: int | None, role: str = "") -> Code:
    request = p4r.WriteRequest(device_id=DEVICE, role=role)
    if election_id is not None:
        request.election_id.high, request.election_id.low = election_id >> 64, election_id & ((1 << 64) - 1)
    try:
        core.write(request)
    except P4RuntimeError as error:
        return error.code
    return Code.OK


def test_the_highest_id_is_primary(core: P4RuntimeCore) -> None:
    first = Controller(core, 10)
    assert first.news() == [(Code.OK, 10)]
    second = Controller(core, 9)
    assert second.news() == [(Code.ALREADY_EXISTS, 10)]
    assert first.news() == []
    third = Controller(core, 1 << 100)
    assert third.news() == [(Code.OK, 1 << 100)]
    assert first.news() == second.news() == [(Code.ALREADY_EXISTS, 1 << 100)]


def test_repeated_bid_keeps_the_primary_and_is_announced_to_all(core: P4RuntimeCore) -> None:
    first, second = Controller(core, 10), Controller(core, 9)
    first.news(), second.news()
    first.bid(10)
    assert first.news() == [(Code.OK, 10)]
    assert second.news() == [(Code.ALREADY_EXISTS, 10)]


def test_a_primary_may_step_down(core: P4RuntimeCore) -> None:
    first, second = Controller(core, 10), Controller(core, 9)
    first.news(), second.news()
    first.bid(8)
    assert first.news() == second.news() == [(Code.NOT_FOUND, 10)]
    second.bid(10)
    assert second.news() == [(Code.OK, 10)]
    assert first.news() == [(Code.ALREADY_EXISTS, 10)]


def test_after_a_primary_left_there_is_none_until_one_asks(core: P4RuntimeCore) -> None:
    first, second = Controller(core, 10), Controller(core, 9)
    second.news()
    first.session.close()
    first.session.close()
    assert second.news() == [(Code.NOT_FOUND, 10)]
    second.bid(9)
    assert second.news() == [(Code.NOT_FOUND, 10)]  # 10 has been seen: 9 is not enough
    second.bid(11)
    assert second.news() == [(Code.OK, 11)]
    third = Controller(core, 10)
    assert third.news() == [(Code.ALREADY_EXISTS, 11)]


def test_a_backup_that_leaves_disturbs_nobody(core: P4RuntimeCore) -> None:
    first, second = Controller(core, 10), Controller(core, 9)
    first.news()
    second.session.close()
    assert first.news() == []


def test_without_an_id_a_client_is_never_primary(core: P4RuntimeCore) -> None:
    standby = Controller(core, None)
    assert standby.news() == [(Code.NOT_FOUND, None)]
    zero = Controller(core, 0)
    assert zero.news() == [(Code.OK, 0)]
    assert standby.news() == [(Code.ALREADY_EXISTS, 0)]
    assert Controller(core, None).news() == [(Code.ALREADY_EXISTS, 0)]


def test_roles_have_primaries_of_their_own(shell: Shell) -> None:
    one, two = Controller(shell.core, 5, "one"), Controller(shell.core, 5, "two")
    assert one.news() == two.news() == [(Code.OK, 5)]
    assert may_write(shell.core, 5, "one") is Code.OK
    assert may_write(shell.core, 1) is Code.OK
    assert may_write(shell.core, 1, "one") is Code.PERMISSION_DENIED
    assert may_write(shell.core, 5, "three") is Code.NOT_FOUND


def test_who_may_write(shell: Shell) -> None:
    backup = Controller(shell.core, 0)
    assert may_write(shell.core, 1) is Code.OK
    assert may_write(shell.core, 0) is Code.PERMISSION_DENIED
    assert may_write(shell.core, None) is Code.PERMISSION_DENIED
    assert backup.news() == [(Code.ALREADY_EXISTS, 1)]
    assert shell.core.read(p4r.ReadRequest(device_id=DEVICE)) is not None
    shell.session.close()
    assert may_write(shell.core, 1) is Code.PERMISSION_DENIED


def test_nobody_writes_before_arbitration(core: P4RuntimeCore) -> None:
    assert may_write(core, 1) is Code.PERMISSION_DENIED
    Controller(core, 1)
    assert may_write(core, 1) is Code.FAILED_PRECONDITION


def test_the_device_is_checked_first(core: P4RuntimeCore) -> None:
    calls: list[Callable[[], object]] = [
        lambda: core.write(p4r.WriteRequest(device_id=8)),
        lambda: core.read(p4r.ReadRequest(device_id=8)),
        lambda: core.set_pipeline(p4r.SetForwardingPipelineConfigRequest(device_id=8)),
        lambda: core.get_pipeline(p4r.GetForwardingPipelineConfigRequest(device_id=8)),
        lambda: core.capabilities(p4r.CapabilitiesRequest(device_id=8)),
        lambda: core.open_stream(lambda _: None).handle(hello(1, device_id=8)),
    ]
    for call in calls:
        with pytest.raises(P4RuntimeError, match="no device 8") as caught:
            call()
        assert caught.value.code is Code.NOT_FOUND


def test_capabilities(core: P4RuntimeCore) -> None:
    assert core.capabilities().p4runtime_api_version == "1.5.0"
    assert core.capabilities(p4r.CapabilitiesRequest(device_id=DEVICE)).p4runtime_api_version == "1.5.0"


def test_an_id_in_use_ends_the_stream(core: P4RuntimeCore) -> None:
    first, second = Controller(core, 10), Controller(core, 9)
    with pytest.raises(P4RuntimeError, match="Election id already exists") as caught:
        Controller(core, 10)
    assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(P4RuntimeError, match="Election id already exists"):
        second.bid(10)
    first.session.close()
    Controller(core, 10)


def test_a_stream_keeps_its_device_and_role(core: P4RuntimeCore) -> None:
    client = Controller(core, 1)
    for message in (hello(1, device_id=8), hello(1, role="other")):
        with pytest.raises(P4RuntimeError) as caught:
            client.session.handle(message)
        assert caught.value.code is Code.FAILED_PRECONDITION


def test_role_configurations_and_numbers_are_refused(core: P4RuntimeCore) -> None:
    configured, numbered = hello(1, "one"), hello(1)
    configured.arbitration.role.config.type_url = "type.googleapis.com/any"
    numbered.arbitration.role.id = 3
    for message in (configured, numbered):
        with pytest.raises(P4RuntimeError) as caught:
            core.open_stream(lambda _: None).handle(message)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_streams_and_roles_are_bounded(core: P4RuntimeCore) -> None:
    for number in range(MAX_CLIENTS):
        Controller(core, number)
    with pytest.raises(P4RuntimeError) as caught:
        Controller(core, MAX_CLIENTS)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    controllers = [Controller(core, 5, f"role {number}") for number in range(MAX_ROLES - 1)]
    with pytest.raises(P4RuntimeError) as caught:
        Controller(core, 1, "one too many")
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    for number in (3, 1):
        controllers[number].session.close()
    Controller(core, 1, "another")  # in place of the role abandoned first, whose ids are forgotten
    core._arbitration.check_role("role 1")
    with pytest.raises(P4RuntimeError) as caught:
        core._arbitration.check_role("role 3")
    assert caught.value.code is Code.NOT_FOUND


def test_the_first_message_is_an_arbitration_update(core: P4RuntimeCore, switch: FakeSwitch) -> None:
    session = core.open_stream(lambda _: None)
    with pytest.raises(P4RuntimeError) as caught:
        session.handle(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x")))
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert not switch.packets_out


def test_a_role_configuration_is_refused_by_its_name(core: P4RuntimeCore) -> None:
    request = hello(1, role="one")
    request.arbitration.role.config.type_url = "type.googleapis.com/vendor.RoleConfig"
    with pytest.raises(P4RuntimeError, match=r"vendor\.RoleConfig is not understood") as caught:
        core.open_stream(lambda _: None).handle(request)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_reads_may_name_a_role_that_is_known(shell: Shell) -> None:
    Controller(shell.core, 5, "one")
    assert list(shell.core.read(p4r.ReadRequest(device_id=DEVICE, role="one"))) == []
    with pytest.raises(P4RuntimeError) as caught:
        shell.core.read(p4r.ReadRequest(device_id=DEVICE, role="two"))
    assert caught.value.code is Code.NOT_FOUND
