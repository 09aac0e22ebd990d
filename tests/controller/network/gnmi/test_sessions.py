"""Sessions to switches' ports: over gRPC to the switch's own server, and in process."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.common.errors import ControllerError
from controller.network.gnmi.grpc_session import Patience, PortTarget, PortWatcher
from controller.network.gnmi.in_process import InProcessPorts
from controller.network.gnmi.settings import Hellos, wanted_hellos
from dataplane.clock import MonotonicClock
from dataplane.local.deadline import local_timeout
from dataplane.rpc.backoff import Backoff
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.ports.states import HelloSettings, OperStatus, PortState
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.values import Topology
from tests.dataplane.switch.gnmi.boards import Board

BOUND_S = 20.0
QUICK = HelloSettings(10_000_000, 4)


class Notes:
    """Notifications to an observer, in order, as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = asyncio.Event()

    def port_changed(self, switch: str, state: PortState) -> None:
        hello = "" if state.hello is None else f" hello {state.hello.settings.multiplier}"
        self._note(f"{switch} {state.port} {state.oper}{hello}")

    def reachable(self, switch: str) -> None:
        self._note(f"{switch} reachable")

    def unreachable(self, switch: str) -> None:
        self._note(f"{switch} is silent")

    def _note(self, line: str) -> None:
        self.lines.append(line)
        self._changed.set()

    async def until(self, line: str) -> None:
        """Wait for a line; drop it and all before it."""
        while line not in self.lines:
            self._changed.clear()
            await self._changed.wait()
        del self.lines[: self.lines.index(line) + 1]


def watcher(address: str, notes: Notes, **hellos: HelloSettings | None) -> PortWatcher:
    wanted = {int(port.removeprefix("port")): settings for port, settings in hellos.items()}
    backoff = Backoff(1_000_000, 50_000_000, random.Random(1))
    patience = Patience(timeout_s=1.0, probe_s=0.05, correct_s=0.01)
    return PortWatcher(PortTarget("s1", address, wanted), notes, backoff, patience=patience)


def run(watch: Callable[[Notes], PortWatcher], work: Callable[[Notes], Awaitable[None]]) -> None:
    """Watch while `work` is done."""

    async def both() -> None:
        notes = Notes()
        tasks = [asyncio.ensure_future(coroutine) for coroutine in (work(notes), watch(notes).run())]
        try:
            async with local_timeout(BOUND_S, "a test"):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            working, watching = tasks
            (watching if watching.done() else working).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(both())


@contextmanager
def serving(address: str, switch: Switch | Board, *, gnmi: bool = True) -> Iterator[None]:
    """Serve P4Runtime and, with `gnmi`, a switch's ports."""
    core = P4RuntimeCore(Switch(1, [PortSettings(1)], MonotonicClock()))
    beside = [GnmiService(GnmiCore(switch))] if gnmi else []
    with P4RuntimeServer(core, [address], beside=beside):
        yield


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path / 's1.sock'}"


def test_ports_are_reported_initially_and_on_change(address: str) -> None:
    switch = Switch(1, [PortSettings(1), PortSettings(2)], MonotonicClock())

    async def work(notes: Notes) -> None:
        await notes.until("s1 reachable")
        await notes.until("s1 1 UP")
        await notes.until("s1 2 UP")
        await asyncio.to_thread(switch.set_oper, 2, OperStatus.LOWER_LAYER_DOWN)
        await notes.until("s1 2 LOWER_LAYER_DOWN")
        assert notes.lines == []

    with serving(address, switch):
        run(lambda notes: watcher(address, notes), work)


def test_hellos_are_set_and_kept(address: str) -> None:
    board = Board()

    async def work(notes: Notes) -> None:
        await notes.until("s1 1 UP hello 4")
        await asyncio.to_thread(board.set_hello, 1, HelloSettings(multiplier=200))
        await notes.until("s1 1 UP hello 200")
        await notes.until("s1 1 UP hello 4")

    with serving(address, board):
        run(lambda notes: watcher(address, notes, port1=QUICK, port2=None), work)
    assert board.calls[0] == f"hello 1 {QUICK}"
    assert not [call for call in board.calls if call.startswith("hello 2")]


def test_a_switch_that_goes_is_silent_at_once_and_watched_again(address: str) -> None:
    async def work(notes: Notes) -> None:
        await notes.until("s1 is silent")
        with serving(address, Board()):
            await notes.until("s1 1 UP hello 4")
        await notes.until("s1 is silent")
        with serving(address, Board()):
            await notes.until("s1 reachable")
            await notes.until("s1 1 UP hello 4")

    run(lambda notes: watcher(address, notes, port1=QUICK), work)


def test_switch_without_gnmi_is_reported_once(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(notes: Notes) -> None:
        for _ in range(20):
            await notes.until("s1 is silent")

    def watch(notes: Notes) -> PortWatcher:
        made = watcher(address, notes)
        made._sleep = lambda wait_s: asyncio.sleep(0)
        return made

    with caplog.at_level(logging.INFO, "millrace.controller"), serving(address, Board(), gnmi=False):
        run(watch, work)
    assert [record.getMessage() for record in caplog.records if record.name == "millrace.controller"] == [
        "switch s1: it does not serve gNMI: its ports and hellos are not monitored"
    ]


def test_silent_switch_is_given_up(tmp_path: Path) -> None:
    async def work(notes: Notes) -> None:
        await notes.until("s1 is silent")

    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "mute.sock"))
        mute.listen()
        run(lambda notes: watcher(f"unix:{tmp_path / 'mute.sock'}", notes), work)


def test_ports_that_are_missing_are_named(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(notes: Notes) -> None:
        await notes.until("s1 reachable")

    with caplog.at_level(logging.WARNING, "millrace.controller"), serving(address, Board()):
        run(lambda notes: watcher(address, notes, port1=QUICK, port8=QUICK, port7=QUICK, port6=None), work)
    assert "switch s1: skipping hellos on ports that do not exist: 7, 8" in caplog.text


def test_in_process_changes_are_reported_at_once() -> None:
    board, notes = Board(), Notes()
    ports = InProcessPorts("s1", GnmiCore(board), notes)
    ports.start({1: QUICK, 2: None})
    assert notes.lines == ["s1 reachable", "s1 1 UP", "s1 2 UP", "s1 1 UP hello 4"]
    board.set_oper(2, OperStatus.DOWN)
    ports.close()
    board.set_oper(2, OperStatus.UP)
    assert notes.lines[4:] == ["s1 2 DOWN", "s1 is silent"]


def test_hellos_are_sent_between_switches_only(diamond: Topology) -> None:
    wanted = wanted_hellos(diamond, Hellos(multiplier=7))
    assert wanted.keys() == {node.name for node in diamond.switches}
    for switch, ports in wanted.items():
        for port, settings in ports.items():
            is_switch = diamond.neighbours[switch][port].node in wanted
            assert settings == (HelloSettings(multiplier=7) if is_switch else None)
    assert {
        hellos for ports in wanted_hellos(diamond, Hellos(enabled=False)).values() for hellos in ports.values()
    } == {None}


def test_an_interval_that_no_hello_can_carry_is_refused(diamond: Topology) -> None:
    with pytest.raises(ControllerError, match="hellos: an interval of 1000001 ns"):
        wanted_hellos(diamond, Hellos(interval_ns=1_000_001))
