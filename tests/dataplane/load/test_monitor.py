"""The load monitor on a clock of its own: start and end of overload, and log lines."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.core import CollectorRegistry, Metric

from dataplane.clock import VirtualClock
from dataplane.load import load_pb2
from dataplane.load.metrics import load_families
from dataplane.load.monitor import BEGIN_AFTER, END_AFTER, LONG_LAG_NS, Cause, LoadMonitor
from dataplane.load.processor import ProcessorTimes, processor_times
from dataplane.load.values import DaemonLoad, DropRate, Overload, QueueLoad, ThreadLoad
from dataplane.rpc.values import Mirror
from tests.waiting import wait_until

S = 1_000_000_000
LOG = logging.getLogger("millrace.test_load")


class Bench:
    """A monitor whose processor times and clock are set by the test."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.times = ProcessorTimes(0)
        self.monitor = LoadMonitor(LOG, loop_advice="use fewer subscribers", clock=self.clock, times=lambda: self.times)

    def second(self, *, lag_ns: int = 0, main: float = 0.1, waited: float = 0.0) -> DaemonLoad:
        before = self.times
        spent_ns = round(main * S)
        self.clock.advance_to(self.clock.now_ns() + S)
        self.times = ProcessorTimes(
            before.process_ns + spent_ns,
            before.waited_ns + round(waited * S),
            {"MainThread": before.threads_ns.get("MainThread", 0) + spent_ns},
        )
        return self.monitor.sample(lag_ns)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_calm_daemon_reports_shares_and_no_overload(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    load = bench.second(main=0.25, waited=0.5)
    assert (load.cores, load.waiting, load.loop_lag_ns) == (0.25, 0.5, 0)
    assert load.threads == (ThreadLoad("MainThread", 0.25),)
    assert not load.overloads
    assert not lines(caplog)


def test_overload_begins_and_ends_with_one_line_each(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(10):
        load = bench.second(main=0.99)
    assert load.overloads == (
        Overload("thread MainThread used 99% of a core", "use fewer subscribers", 9 * S, "thread MainThread"),
    )
    for _ in range(END_AFTER):
        load = bench.second()
    assert not load.overloads
    assert lines(caplog) == [
        "overloaded: thread MainThread used 99% of a core; use fewer subscribers",
        "no longer overloaded (thread MainThread), after 14 s",
    ]


def test_single_bad_sample_is_no_overload(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        assert not bench.second(lag_ns=2 * LONG_LAG_NS).overloads
        bench.second()
    assert not lines(caplog)
    assert BEGIN_AFTER > 1


def test_short_pause_does_not_end_an_overload(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(4):
        bench.second(main=1.0)
        bench.second(main=1.0)
        for _ in range(END_AFTER - 1):
            assert bench.second().overloads
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize(("waited", "advice"), [(0.0, "use fewer subscribers"), (0.8, "other processes use")])
def test_lag_blames_whoever_had_the_processor(bench: Bench, waited: float, advice: str) -> None:
    bench.second(lag_ns=LONG_LAG_NS, waited=waited)
    (overload,) = bench.second(lag_ns=LONG_LAG_NS, waited=waited).overloads
    assert overload.cause == "the event loop was late by 0.5 s"
    assert overload.advice.startswith(advice)


def test_growing_drop_counters_are_rates_and_causes(bench: Bench) -> None:
    counters = Counter({"socket full": 100, "harmless": 5})
    bench.monitor.watch_counters(lambda: counters, {"socket full": "raise receiver.socket_buffer_bytes"})
    assert not bench.second().drops
    for _ in range(2):
        counters.update({"socket full": 40, "harmless": 9})
        load = bench.second()
    assert load.drops == (DropRate("socket full", 40.0),)
    advice = "raise receiver.socket_buffer_bytes"
    assert load.overloads == (Overload("socket full: 40 a second", advice, S, "drops socket full"),)


@pytest.mark.parametrize(
    ("queue", "cause"),
    [
        (QueueLoad("batches", 60, 64), "batches: 60 of at most 64"),
        (QueueLoad("batches", 3, 64, 4 * S), "batches: the oldest has waited for 4.0 s"),
        (QueueLoad("batches", 3, 64, S), None),
        (QueueLoad("batches", 3), None),
    ],
)
def test_queues_are_too_long_or_too_old(bench: Bench, queue: QueueLoad, cause: str | None) -> None:
    bench.monitor.watch_queue(lambda: queue, "raise queue_batches", oldest_ns=3 * S)
    bench.second()
    load = bench.second()
    assert load.queues == (queue,)
    assert [overload.cause for overload in load.overloads] == ([] if cause is None else [cause])


def test_causes_of_the_daemon_itself_are_asked_for(bench: Bench) -> None:
    bench.monitor.watch(lambda: Cause("rounds", "a round takes 3.0 s", "raise interval_ns"))
    bench.second()
    assert str(bench.second().overloads[0]) == "overloaded for 1 s: a round takes 3.0 s; raise interval_ns"


def test_running_monitor_measures_a_blocked_loop() -> None:
    async def blocked() -> int:
        monitor = LoadMonitor(LOG, loop_advice="")
        task = asyncio.create_task(monitor.run())
        while monitor.load == DaemonLoad():
            await asyncio.sleep(0)
            time.sleep(0.15)
        task.cancel()
        return monitor.load.loop_lag_ns

    assert asyncio.run(blocked()) > 10_000_000


def test_processor_times_of_this_process_grow_by_thread() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    worker = threading.Thread(target=spin, name="spinning")
    worker.start()
    before = processor_times()
    wait_until(lambda: processor_times().threads_ns["spinning"] >= before.threads_ns["spinning"] + 10_000_000)
    stop.set()
    worker.join()
    assert processor_times().process_ns > before.process_ns


def test_load_survives_its_message_and_is_exposed() -> None:
    load = DaemonLoad(
        0.5,
        0.25,
        S,
        (ThreadLoad("MainThread", 0.5),),
        (QueueLoad("batches", 1), QueueLoad("socket", 2, 3, 4)),
        (DropRate("full", 1.5),),
        (Overload("a", "b", 7),),
    )
    mirror = Mirror(DaemonLoad, load_pb2.DaemonLoad)
    assert mirror.value(mirror.message(load)) == load
    registry = CollectorRegistry()
    registry.register(_Collector(load))
    assert registry.get_sample_value("millrace_collector_overloaded") == 1.0
    assert registry.get_sample_value("millrace_collector_queue_length", {"queue": "socket"}) == 2.0
    assert registry.get_sample_value("millrace_collector_drops_per_second", {"reason": "full"}) == 1.5


class _Collector:
    def __init__(self, load: DaemonLoad) -> None:
        self._load = load

    def collect(self) -> list[Metric]:
        return list(load_families("collector", self._load))


def test_threads_that_end_meanwhile_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Thread(target=str)
    ended.start()
    ended.join()
    wait_until(lambda: not Path(f"/proc/self/task/{ended.native_id}").exists())
    # To the C library a thread is an address in memory, here one already freed.
    gone = SimpleNamespace(name="gone", ident=8, native_id=ended.native_id)
    monkeypatch.setattr(threading, "enumerate", lambda: [gone, threading.main_thread()])
    assert set(processor_times().threads_ns) == {threading.main_thread().name}
