"""Leftovers of a Nic that cannot start, is closed while in use, or is simply dropped."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from dataplane.errors import PortError
from dataplane.nic import Call, Nic, NicPort, NicSettings, PortKind, memory_pair, open_nic
from dataplane.nic.flows.rules import FlowVerdict
from tests.dataplane.nic.conftest import Cable
from tests.waiting import HANG_S, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def count_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts only


def test_a_nic_that_cannot_start_leaves_nothing_open() -> None:
    before = count_descriptors()
    here, there = memory_pair()
    with pytest.raises(PortError, match="processor"):
        open_nic(here, NicSettings(cpus=(4096,)))
    there.close()
    assert count_descriptors() == before


def test_threads_that_run_end_if_another_one_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would use the port after it has been closed."""
    pairs = [memory_pair(), memory_pair()]
    here = NicPort("two", [channel for pair in pairs for channel in pair[0]._channels])
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_once(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start_once)
    with pytest.raises(RuntimeError, match="start new thread"):
        open_nic(here, NicSettings(queues=2, threads=2))
    assert not started[0].is_alive()
    for _, there in pairs:
        there.close()


def test_a_nic_that_nobody_has_any_more_gives_everything_back() -> None:
    before = count_descriptors()
    here, there = memory_pair()
    nic = open_nic(here, NicSettings())
    consumer = nic.add_consumer("c", buffers=16)
    del nic, here
    gc.collect()
    assert consumer.is_closed
    there.close()
    assert count_descriptors() == before


def test_forked_process_leaves_the_nic_to_its_parent() -> None:
    here, there = memory_pair()
    nic = open_nic(here, NicSettings(threads=0))
    child = os.fork()
    if child == 0:
        finalizer = nic._at_exit  # as the end of the process calls it
        finalizer()
        os._exit(int(nic._port.is_down))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    there.send([bytes(60)])
    assert nic.step(1) == 1
    nic.close()
    there.close()


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("kind", [PortKind.PACKET_V2, PortKind.XDP])
def test_a_nic_may_be_read_while_it_is_closed(cable: Cable, kind: PortKind) -> None:
    for _ in range(5):
        nic = cable.call(lambda: open_nic("here", NicSettings(kind=kind)))
        errors: list[Exception] = []
        rounds: list[bool] = []
        ended = threading.Event()

        def read(nic: Nic = nic, errors: list[Exception] = errors, rounds: list[bool] = rounds) -> None:
            while not ended.is_set():  # noqa: B023 - one thread a round
                try:
                    nic.read_statistics()
                    rounds.append(nic.is_down or nic.has_link)
                except (ValueError, OSError, PortError) as error:
                    errors.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: len(rounds) > 3)  # noqa: B023
        nic.close()
        ended.set()
        thread.join()
        assert errors == []


def test_closing_stops_calls_of_a_slow_function_mid_burst() -> None:
    here, there = memory_pair()
    called = threading.Event()

    def be_slow(_frame: bytes, _verdict: FlowVerdict) -> None:
        called.set()
        wait_until(lambda: nic._driver.threads[0].state.stop == 1)

    nic = open_nic(here, NicSettings())
    nic.classifier.set_default(Call(be_slow))
    there.send([bytes(60)] * 100)
    assert called.wait(HANG_S)
    nic.close()
    statistics = nic.read_statistics()
    assert statistics.called == 1
    assert statistics.dropped["closing"] == statistics.received - 1
    there.close()


def test_function_raising_system_exit_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    def leave(frame: bytes, verdict: FlowVerdict) -> None:
        raise SystemExit(len(frame))

    here, there = memory_pair()
    with open_nic(here, NicSettings(threads=0)) as nic:
        nic.classifier.set_default(Call(leave), count=True)
        there.send([bytes(60)])
        nic.step(1)
        assert nic.classifier.default_count.failures == 1
    assert "SystemExit" in caplog.text
    there.close()
