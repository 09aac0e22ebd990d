"""Calls served during a long operation: compiling a program, a batch of many updates."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4r

from dataplane.program.model import Program
from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeError
from dataplane.switch.pipeline import DigestMessage, PreparedProgram

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

Request = p4r.SetForwardingPipelineConfigRequest
TIMEOUT_S = 10.0
PREFIX = [
    p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01")),
    p4r.FieldMatch(field_id=2, lpm=p4r.FieldMatch.LPM(value=b"\x0a" + bytes(5), prefix_len=8)),
]


class SlowPush:
    """A program that is being made ready to run in another thread, for as long as the test wants."""

    def __init__(
        self, core: P4RuntimeCore, switch: FakeSwitch, request: Request, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._begun, self._may_end = threading.Event(), threading.Event()
        self._prepare, self._core, self._request = switch.prepare, core, request
        self.error: P4RuntimeError | None = None
        monkeypatch.setattr(switch, "prepare", self._slow)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._begun.wait(TIMEOUT_S)

    def _slow(self, program: Program) -> PreparedProgram:
        self._begun.set()
        assert self._may_end.wait(TIMEOUT_S)
        return self._prepare(program)

    def _run(self) -> None:
        try:
            self._core.set_pipeline(self._request)
        except P4RuntimeError as error:
            self.error = error

    def finish(self) -> None:
        self._may_end.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


def request_for(config: p4r.ForwardingPipelineConfig) -> Request:
    return Request(device_id=7, election_id=p4r.Uint128(low=1), action=Request.VERIFY_AND_COMMIT, config=config)


def test_old_program_keeps_working_while_a_new_one_compiles(
    shell: Shell,
    core: P4RuntimeCore,
    switch: FakeSwitch,
    config: p4r.ForwardingPipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push = SlowPush(core, switch, request_for(config), monkeypatch)
    try:
        entry = shell.entry("lpm_table", PREFIX, action=shell.action("drop"))
        shell.insert(entry)
        assert shell.read(shell.entry("lpm_table")) == [entry]
        shell.received.clear()
        switch.packet_in(bytes(16))
        switch.digests(DigestMessage("learned_t", (1, 2)))
        switch.set_port_status(1, False)
        shell.connect(0, [])
        assert core.tick(0) is None
        assert [message.WhichOneof("update") for message in shell.received] == ["packet"]
        assert core.get_pipeline(p4r.GetForwardingPipelineConfigRequest(device_id=7)).HasField("config")
    finally:
        push.finish()
    assert push.error is None
    assert shell.read(shell.entry("lpm_table")) == []


def test_lost_primary_does_not_install_its_compiled_program(
    shell: Shell,
    core: P4RuntimeCore,
    switch: FakeSwitch,
    config: p4r.ForwardingPipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = switch.state
    push = SlowPush(core, switch, request_for(config), monkeypatch)
    try:
        shell.connect(9, [])
    finally:
        push.finish()
    assert push.error is not None
    assert push.error.code is Code.PERMISSION_DENIED
    assert switch.state is state


def test_packets_come_in_while_a_batch_is_written(
    shell: Shell, core: P4RuntimeCore, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert switch.state is not None
    table = switch.state.tables["EntitiesIngress.lpm_table"]
    inside, may_end = threading.Event(), threading.Event()
    insert = table.insert

    def slow(entry: object) -> None:
        inside.set()
        assert may_end.wait(TIMEOUT_S)
        insert(entry)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(table, "insert", slow)
    entry = shell.entry("lpm_table", PREFIX, action=shell.action("drop"))
    writer = threading.Thread(target=shell.insert, args=(entry,))
    writer.start()
    assert inside.wait(TIMEOUT_S)
    try:
        shell.received.clear()
        switch.packet_in(bytes(16))
        assert [message.WhichOneof("update") for message in shell.received] == ["packet"]
    finally:
        may_end.set()
        writer.join(TIMEOUT_S)
