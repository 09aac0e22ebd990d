"""A program's side of a balanced unit: its offer, its slots, its counters, and messages on the wire."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from controller.balance.values import Precision
from dataplane.balance import UnitError, balanced_unit
from dataplane.balance.messages import MOST_BYTES, PRECISIONS, Hello, Order, State, Welcome, decode, encode
from dataplane.balance.timing import BusyCounter
from dataplane.clock import VirtualClock
from tests.waiting import wait_until

HELLO = (
    b'{"unit":"u0","precisions":["bf16","fp32"],"precision":"fp32",'
    b'"concurrency_low":1,"concurrency_high":4,"concurrency":2,"version":1}'
)
STATE = b'{"number":3,"precision":"bf16","concurrency":2,"now_ns":9,"moving_ns":4,"computing_ns":7,"refusal":""}'


def test_messages_are_these_bytes_and_no_others() -> None:
    hello = Hello("u0", ("bf16", "fp32"), "fp32", 1, 4, 2)
    state = State(number=3, precision="bf16", concurrency=2, now_ns=9, moving_ns=4, computing_ns=7)
    assert (encode(hello), encode(state)) == (HELLO, STATE)
    assert (decode(HELLO, Hello), decode(STATE, State)) == (hello, state)
    assert decode(encode(Order(1, concurrency=3)), Order) == Order(1, None, 3)
    for packet in (*(HELLO[:end] for end in range(len(HELLO))), HELLO.replace(b'"u0"', b'"%s"' % (b"u" * MOST_BYTES))):
        with pytest.raises(ValueError, match=r"."):
            decode(packet, Hello)
    for other in (HELLO.replace(b'"version"', b'"more"'), STATE.replace(b":9", b":-9"), b"[" * 4000):
        with pytest.raises(ValueError, match=r"."):
            decode(other, State)
    with pytest.raises(ValueError, match="hold_s"):
        decode(b'{"hold_s":0}', Welcome)


def test_its_precisions_are_those_of_the_controller() -> None:
    assert tuple(Precision) == PRECISIONS


@pytest.mark.parametrize(
    ("offer", "problem"),
    [
        ({"precisions": ("fp32", "fp33")}, "unit u0: precisions: 'fp33' is not one of int4"),
        ({"precisions": ()}, "unit u0: "),
        ({"precisions": ("int8", "int8")}, "unit u0: precisions: duplicate precision"),
        ({"precision": "int8"}, "unit u0: precision: int8 is not one of fp32"),
        ({"concurrency": (4, 2)}, "unit u0: concurrency: 4 is not in 4 to 2"),
        ({"concurrency": (0, 2)}, "unit u0: Expected `int` >= 1"),
        ({"concurrency": (1, 4), "at_once": 5}, "unit u0: concurrency: 5 is not in 1 to 4"),
    ],
)
def test_an_offer_that_contradicts_itself_is_an_error(offer: dict[str, object], problem: str) -> None:
    with pytest.raises(UnitError, match=rf"^{problem}"):
        balanced_unit("u0", **offer)  # type: ignore[arg-type]


def test_a_unit_without_a_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLRACE_UNIT", raising=False)
    with pytest.raises(UnitError, match=r"^no unit is named, neither here nor by MILLRACE_UNIT$"):
        balanced_unit()


def test_without_a_loop_a_program_runs_as_it_starts() -> None:
    with balanced_unit("u0", precisions=("int8", "fp32"), concurrency=(1, 8), at_once=2, path="/no/such.sock") as unit:
        wait_until(lambda: bool(unit.refusal))
        assert (unit.precision, unit.concurrency, unit.is_driven) == ("fp32", 2, False)
        assert unit.refusal == "no loop runs"


def test_no_more_threads_run_at_once_than_its_concurrency() -> None:
    most, running, go = list[int](), list[int](), threading.Event()
    unit = balanced_unit("u0", concurrency=(1, 8), at_once=2)

    def work() -> None:
        with unit.slot():
            running.append(1)
            most.append(len(running))
            go.wait()
            running.pop()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(running) == 2)
    unit._set("fp32", 4)  # as the loop's order does
    wait_until(lambda: len(running) == 4)
    go.set()
    for thread in threads:
        thread.join()
    assert max(most) == 4


def test_busy_time_of_threads_counts_once_or_each() -> None:
    clock = VirtualClock()
    busy = BusyCounter(clock)
    with busy:
        clock.advance_to(30)
        with busy:
            clock.advance_to(40)
            assert (busy.busy_ns(40), busy.thread_ns(40)) == (40, 50)
    clock.advance_to(100)
    assert (busy.busy_ns(100), busy.thread_ns(100)) == (40, 50)


def test_the_library_imports_no_large_package() -> None:
    code = "import sys, dataplane.balance; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    large = {"numpy", "torch", "controller", "collectors", "grpc", "yaml", "rich", "typer", "asyncio", "cryptography"}
    assert large & set(done.stdout.split()) == set()
