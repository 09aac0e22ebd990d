"""A program's own measurement of transfer and compute time; its loop over batch size and autocast."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from controller.balance.control.controller import Controller, ControlSettings
from controller.balance.levers.programs import Autocast, BatchSize
from controller.balance.levers.values import Lever
from controller.balance.rules import IntervalRule, IntervalTable, Row
from controller.balance.running.board import Board
from controller.balance.running.loop import Loop, Metered, Tick
from controller.balance.running.silence import SilenceSettings
from controller.balance.running.timing import BusyTime
from controller.balance.values import LeverKind, Precision
from dataplane.clock import MonotonicClock, VirtualClock
from tests.waiting import HANG_S

STEPS = IntervalTable(
    rows=(
        Row(interval="[-1, -0.1)", precision_steps=-1),
        Row(interval="[-0.1, 0.1]"),
        Row(interval="(0.1, 1]", precision_steps=1),
    )
)
"""A program's own lever, one step at a time."""
RULE = IntervalRule(table=STEPS, levers=(LeverKind.PRECISION,), guarded=False)


def test_busy_time_counts_running_and_nested_blocks_once() -> None:
    clock = VirtualClock()
    busy = BusyTime(clock)
    with busy:
        clock.advance_to(30)
        with busy:
            clock.advance_to(40)
    clock.advance_to(100)
    assert busy.share(100) == 0.4
    with busy:
        clock.advance_to(160)
        assert busy.share(160) == 100 / 160
        busy.begin(160)
        clock.advance_to(200)
        assert busy.share(200) == 1.0
    clock.advance_to(240)
    assert busy.share(240) == 0.5
    busy.begin(240)
    assert busy.share(240) == 0.0


class Training:
    """A program in virtual time: a batch costs the bus a round trip and its bytes, the cores its items.

    While one batch is computed the next one is on its way, as with a loader that reads ahead.
    """

    def __init__(self, trip_ns: int, item_bus_ns: int, item_core_ns: int, lever: Lever) -> None:
        self.clock = VirtualClock()
        self.trip_ns, self.item_bus_ns, self.item_core_ns = trip_ns, item_bus_ns, item_core_ns
        self.bus, self.cores = BusyTime(self.clock), BusyTime(self.clock)
        self.loop = Loop(
            Metered("training", self.bus, self.cores),
            Controller(ControlSettings()),
            RULE,
            Board([lever], self.clock),
            silence=SilenceSettings(),
            clock=self.clock,
        )

    def run(self, size: int, *, halved: bool = False) -> float:
        """Run a step; return its error."""
        bus_ns = self.trip_ns + size * self.item_bus_ns
        core_ns = size * self.item_core_ns // (2 if halved else 1)
        first, then = sorted([(bus_ns, self.bus), (core_ns, self.cores)], key=lambda pair: pair[0])
        start_ns = self.clock.now_ns()
        with then[1]:
            with first[1]:
                self.clock.advance_to(start_ns + first[0])
            self.clock.advance_to(start_ns + then[0])
        sample = self.loop.tick().sample
        assert sample is not None
        return sample.error


def test_long_round_trips_grow_batches_until_both_are_busy() -> None:
    batch = BatchSize(8, high=512, per_doubling=4)
    program = Training(trip_ns=10_000_000, item_bus_ns=100_000, item_core_ns=200_000, lever=batch)
    errors = [program.run(batch.size) for _ in range(20)]
    assert errors[0] > 0.5
    assert batch.size == 91
    assert abs(errors[-1]) < 0.1


def test_slow_cores_lower_the_precision_until_both_are_busy() -> None:
    lever = Autocast(None)
    program = Training(trip_ns=0, item_bus_ns=100_000, item_core_ns=195_000, lever=lever)
    errors = [program.run(32, halved=lever.precision is Precision.FP16) for _ in range(4)]
    assert errors[0] < -0.4
    assert lever.precision is Precision.FP16
    assert abs(errors[-1]) < 0.1


@pytest.mark.gpu
def test_on_a_gpu_batches_and_autocast_follow_the_error() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    clock, device = MonotonicClock(), torch.device("cuda")
    bus, cores, batch = BusyTime(clock), BusyTime(clock), BatchSize(64, high=1 << 15)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).to(device)
    loop = Loop(
        Metered("gpu", bus, cores),
        Controller(ControlSettings()),
        RULE,
        Board([batch], clock),
        silence=SilenceSettings(),
        clock=clock,
    )
    ready: queue.Queue[object] = queue.Queue(maxsize=1)
    done = threading.Event()

    def load() -> None:
        stream = torch.cuda.Stream()
        while not done.is_set():
            host = torch.randn(batch.size, 1024).pin_memory()
            with bus, torch.cuda.stream(stream):
                item = host.to(device, non_blocking=True)
                stream.synchronize()
            while not done.is_set():
                try:
                    ready.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue

    loader = threading.Thread(target=load)
    loader.start()
    samples: list[Tick] = []
    try:
        autocast = Autocast(torch.bfloat16)
        next_s = time.monotonic() + 0.25
        while len(samples) < 20:
            item = ready.get(timeout=HANG_S)
            with cores, autocast.autocast():
                model(item).sum().backward()
                torch.cuda.current_stream().synchronize()
            if time.monotonic() >= next_s:
                next_s += 0.25
                samples.append(loop.tick())
    finally:
        done.set()
        loader.join(HANG_S)
    assert all(tick.sample is not None for tick in samples)
    assert any(tick.has_moved for tick in samples) or all(abs(tick.output) <= 0.1 for tick in samples)
