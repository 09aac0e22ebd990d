"""A running program's levers over its real socket; the peer may be a program, garbage, silent, or gone."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.balance.errors import LeverError
from controller.balance.levers.running_program import ProgramConcurrency, ProgramLink, ProgramPrecision
from controller.balance.levers.settings import ProgramLever
from controller.balance.running.board import Board
from controller.balance.values import Change, Precision
from dataplane.balance import BalancedUnit, balanced_unit
from dataplane.balance.messages import Hello, State, Welcome, decode, encode
from dataplane.clock import MonotonicClock
from dataplane.config import loads
from dataplane.errors import ConfigError
from tests.waiting import HANG_S, wait_until

HELLO = Hello("u0", ("int8", "fp32"), "fp32", 1, 4, 2)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "u0.sock")


@pytest.fixture
def link(path: str) -> Iterator[ProgramLink]:
    with ProgramLink("u0", ProgramLever(socket=path), hold_s=HANG_S) as link:
        yield link


def offered(path: str) -> BalancedUnit:
    return balanced_unit("u0", precisions=("int8", "bf16", "fp16", "fp32"), concurrency=(1, 4), at_once=2, path=path)


def raw(path: str, packet: bytes = b"") -> socket.socket:
    """Connect as a program of our own, and send its first packet."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(HANG_S)
    connection.connect(path)
    if packet:
        connection.send(packet)
    return connection


def welcome_of(connection: socket.socket) -> str:
    with connection:
        return decode(connection.recv(4096), Welcome).refusal


def wait_for_program(link: ProgramLink) -> None:
    wait_until(lambda: link.hello is not None, "no program connects")


def test_precision_and_concurrency_are_moved_and_restored(link: ProgramLink, path: str) -> None:
    precision, concurrency = ProgramPrecision(link, may_set=True), ProgramConcurrency(link, may_set=True)
    board = Board([precision, concurrency], MonotonicClock())
    with offered(path) as unit:
        wait_for_program(link)
        board.read()
        assert (board.state.precision, board.state.concurrency) == (Precision.FP32, 2)
        board.apply(Change(precision_steps=-1, concurrency=1))
        assert (unit.precision, unit.concurrency, unit.is_driven) == ("bf16", 3, True)
        assert precision.precisions == (Precision.INT8, Precision.BF16, Precision.FP32)  # fp16 is no faster than bf16
        moves = board.apply(Change(precision_steps=-2, concurrency=4))
        assert (unit.precision, unit.concurrency) == ("int8", 4)
        assert board.state.precision is Precision.INT8
        assert [move.moved.reason for move in moves] == ["", ""]
        assert board.release() == []
        assert (unit.precision, unit.concurrency) == ("fp32", 2)


def test_levers_without_a_program_or_permission_stay(link: ProgramLink, path: str) -> None:
    precision, concurrency = ProgramPrecision(link), ProgramConcurrency(link)
    assert concurrency.move(1).reason == precision.move(-1).reason == "no program has connected"
    with offered(path) as unit:
        wait_for_program(link)
        assert concurrency.move(1).reason == precision.move(-1).reason == "its settings lack set: true"
        concurrency.release()
        assert (unit.precision, unit.concurrency) == ("fp32", 2)


def test_a_program_that_ends_is_noticed_and_the_next_one_taken(link: ProgramLink, path: str) -> None:
    concurrency = ProgramConcurrency(link, may_set=True)
    with offered(path):
        wait_for_program(link)
        assert concurrency.move(1).done == 1
    wait_until(lambda: link.hello is None)
    assert concurrency.read().why_not == "no program has connected"
    with offered(path) as unit:
        wait_for_program(link)
        assert (concurrency.read().value, unit.concurrency) == (2, 2)


def test_a_program_keeps_its_settings_for_the_hold_then_returns(path: str) -> None:
    with offered(path) as unit:
        with ProgramLink("u0", ProgramLever(socket=path), hold_s=0.3) as link:
            wait_for_program(link)
            link.ask(precision="int8", concurrency=4)
            assert unit.precision == "int8"
        wait_until(lambda: (unit.precision, unit.concurrency) == ("fp32", 2))
        assert not unit.is_driven


def test_a_second_program_is_refused_with_the_first_ones_process(link: ProgramLink, path: str) -> None:
    with offered(path):
        wait_for_program(link)
        second = raw(path, encode(HELLO))
        assert link.hello is not None
        assert welcome_of(second) == f"unit u0 has a program already (process {os.getpid()})"


@pytest.mark.parametrize(
    ("packet", "refusal"),
    [
        (b"{", "Input data was truncated"),
        (b"x" * 5000, "longer than 4096 bytes"),
        (encode(HELLO).replace(b"u0", b"u1"), "this is unit u0, not u1"),
        (encode(HELLO).replace(b'"version":1', b'"version":2'), "version 2 of the messages, not 1"),
        (encode(HELLO).replace(b'"concurrency":2', b'"concurrency":9'), "concurrency: 9 is not in 1 to 4"),
    ],
)
def test_an_invalid_offer_is_refused_in_a_line(link: ProgramLink, path: str, packet: bytes, refusal: str) -> None:
    connection = raw(path, packet)
    assert link.hello is None
    assert welcome_of(connection).startswith(refusal)


def test_silent_connections_are_bounded_and_delay_nothing(link: ProgramLink, path: str) -> None:
    silent = [raw(path) for _ in range(8)]
    assert link.hello is None
    more = raw(path)
    assert link.hello is None
    assert more.recv(10) == b""  # closed: eight wait already
    for connection in (*silent, more):
        connection.close()
    with offered(path):
        wait_for_program(link)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (State(1, "int4", 2, 0, 0, 0), "sends an invalid state: precision int4 was not offered"),
        (State(1, "int8", 9, 0, 0, 0), "sends an invalid state: concurrency 9 was not offered"),
        (None, "sends an invalid state: JSON is malformed"),
    ],
)
def test_an_invalid_state_ends_the_connection(link: ProgramLink, path: str, state: State | None, problem: str) -> None:
    connection = raw(path, encode(HELLO))
    assert link.hello is not None
    connection.recv(4096)

    def answer() -> None:
        connection.recv(4096)
        connection.send(b"nonsense" if state is None else encode(state))

    program = threading.Thread(target=answer)
    program.start()
    with pytest.raises(LeverError, match=rf"^lever program of u0: its process {os.getpid()} {problem}"):
        link.ask()
    program.join()
    wait_until(lambda: link.hello is None)
    connection.close()


def test_the_socket_is_its_users_alone(link: ProgramLink) -> None:
    status = link.path.lstat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.root
def test_a_program_of_another_user_needs_settings_that_name_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    folder = Path("/srv") / f"millrace-test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o755)
    path = str(folder / "u0.sock")
    code = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]);"
        "s.send(sys.argv[2].encode()); print(s.recv(4096).decode())"
    )
    command = [sys.executable, "-I", "-c", code, path, encode(HELLO).decode()]
    try:
        for settings in (ProgramLever(socket=path), ProgramLever(socket=path, user="nobody")):
            with ProgramLink("u0", settings, hold_s=HANG_S) as link:
                link.path.chmod(0o666)  # even if its mode let others in
                program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                wait_until(lambda: link.hello is not None or program.poll() is not None)  # noqa: B023 - runs at once
                output, _ = program.communicate()
                assert (b"hold_s" in output) is (settings.user is not None)
    finally:
        folder.rmdir()


def test_a_loop_takes_over_a_dead_ones_socket_but_no_live_ones(path: str) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    dead.bind(path)
    dead.close()
    problem = rf"^lever program of u0: another loop listens at {path}$"
    with (
        ProgramLink("u0", ProgramLever(socket=path), hold_s=1.0),
        pytest.raises(LeverError, match=problem),
        ProgramLink("u0", ProgramLever(socket=path), hold_s=1.0),
    ):
        pass
    assert not Path(path).exists()
    Path(path).write_text("a file")
    with pytest.raises(LeverError, match=rf"^lever program of u0: {path}: Address already in use$"):
        ProgramLink("u0", ProgramLever(socket=path), hold_s=1.0).__enter__()
    assert Path(path).read_text() == "a file"


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LeverError, match=rf"^lever program of u0: others may write to {folder}: the socket needs"):
        ProgramLink("u0", ProgramLever(socket=str(folder / "u0.sock")), hold_s=1.0)
    with pytest.raises(LeverError, match=r"^lever program of u0: /no/such: No such file or directory$"):
        ProgramLink("u0", ProgramLever(socket="/no/such/u0.sock"), hold_s=1.0)


def test_an_unknown_user_or_one_without_a_socket_is_an_error(path: str) -> None:
    with pytest.raises(LeverError, match=r"^lever program of u0: no user nobody-here$"):
        ProgramLink("u0", ProgramLever(socket=path, user="nobody-here"), hold_s=1.0)
    with pytest.raises(ConfigError, match="user: another user cannot enter this one's folder: set `socket`"):
        loads("user: nobody", ProgramLever)
