"""The classifier under native threads: visible changes, counts and calls."""

from __future__ import annotations

import ctypes
import functools
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from dataplane.native import (
    Array,
    Inline,
    Struct,
    address,
    array_at,
    as_u64,
    fence,
    invoke,
    kernel,
    kernel_library,
    load_acquire,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.nic.flows.classifier import FlowClassifier, RuleCount
from dataplane.nic.flows.kernels.classifying import classify
from dataplane.nic.flows.rules import Call, Drop, FlowRule, FlowVerdict, Range
from dataplane.nic.flows.structures import STRIPES, Classifier
from dataplane.nic.structures import ActionKind, FrameFunction, Verdict
from tests.waiting import wait_until

FRAME = bytes.fromhex("020000000002 020000000001 0800 4500001c 00000000 40110000 0a000001 0a000002 03e87ffe 00080000")
PATIENCE_S = 20.0


class Prober(Struct):
    """A thread that classifies one frame again and again."""

    classifier: Classifier
    verdict: Verdict
    frame: Array[u8]
    length: u32
    queue: u32
    stop: u64
    epoch: Inline[u64, Literal[1]]
    frames: u64
    missed: u64
    torn: u64


@kernel
def probe(prober: Prober) -> None:
    """Classify until stopped; every verdict must have a rule with its mark as context."""
    verdict = prober.verdict
    while load_acquire(prober.stop) == 0:
        store_release(prober.epoch[0], prober.epoch[0] + 1)
        fence()
        for _ in range(32):
            classify(prober.classifier, prober.frame, prober.length, prober.queue, verdict)
            prober.frames += 1
            prober.missed += 1 if verdict.rule == 0 else 0
            prober.torn += 1 if verdict.context != as_u64(verdict.mark) else 0
        store_release(prober.epoch[0], prober.epoch[0] + 1)


@kernel
def act(classifier: Classifier, frame: Array[u8], length: u32, verdict: Verdict) -> None:
    """Do what a driver thread does with a frame that is for a function."""
    classify(classifier, frame, length, 0, verdict)
    if verdict.action == ActionKind.CALL:
        invoke(FrameFunction, verdict.function, verdict.context, address(frame), length, address(verdict))


@kernel
def add_up(context: u64, frame: u64, length: u32, verdict: u64) -> None:
    """Add a frame's length, first byte and mark to the totals at the context."""
    total = array_at(u64, context)
    total[0] += as_u64(length)
    total[1] += as_u64(array_at(u8, frame)[0])
    total[2] += as_u64(view(Verdict, verdict).mark)


@functools.cache
def kernels() -> tuple[Callable[[Prober], None], Callable[..., None], int]:
    library = kernel_library(probe, act, add_up)
    return library.bind(probe), library.bind(act), library.call_address(add_up)


def no_group(name: str) -> int | None:
    return None


def marked(name: str, mark: int, match: dict[str, Range | int], *, count: bool = False) -> FlowRule:
    """Return a rule whose verdict shows if it was torn."""
    return FlowRule(name, match, Call(1, context=mark), mark=mark, count=count)


@contextmanager
def probing(classifier: FlowClassifier, threads: int) -> Iterator[list[Prober]]:
    """Run classifying threads while the block lasts; all their hits go to the same counter."""
    probers = [
        Prober(classifier=classifier.native, verdict=Verdict(), frame=(ctypes.c_uint8 * len(FRAME))(*FRAME))
        for _ in range(threads)
    ]
    running = []
    for number, prober in enumerate(probers):
        prober.length, prober.queue = len(FRAME), number * STRIPES
        classifier.register_driver(address(prober.epoch))
        running.append(threading.Thread(target=kernels()[0], args=(prober,)))
    for thread in running:
        thread.start()
    try:
        wait_until(lambda: all(prober.frames for prober in probers))
        yield probers
    finally:
        for prober in probers:
            prober.stop = 1
        for thread, prober in zip(running, probers, strict=True):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            classifier.unregister_driver(address(prober.epoch))


def test_changes_are_atomic_for_threads_and_frames_counted_once() -> None:
    classifier = FlowClassifier(no_group)
    matches: list[dict[str, Range | int]] = [
        {"udp.dst": 32766},
        {"udp.dst": Range(32000, 32767)},
        {"ip.version": 4},
        {},
    ]
    classifier.insert(marked("all", 1, {}, count=True))
    with probing(classifier, 3) as probers:
        for mark in range(2, 300):
            with classifier.batch():  # the rule goes from one hash table to another one
                classifier.replace(marked("all", mark, matches[mark % 4], count=True))
                for other in range(mark % 3):
                    classifier.insert(marked(f"{mark}-{other}", other, {"udp.dst": other, "nic.queue": mark}))
    assert [(prober.missed, prober.torn) for prober in probers] == [(0, 0)] * 3
    frames = sum(prober.frames for prober in probers)
    assert classifier.read_counters()["all"] == RuleCount(frames, frames * len(FRAME))


def test_a_thread_that_ended_inside_a_burst_keeps_nothing_alive() -> None:
    classifier = FlowClassifier(no_group)
    epochs = [ctypes.c_uint64(1), ctypes.c_uint64(1)]
    for epoch in epochs:
        classifier.register_driver(ctypes.addressof(epoch))

    def fail(frame: bytes, verdict: FlowVerdict) -> None:
        raise ValueError

    lives = weakref.ref(fail)
    classifier.insert(FlowRule("once", {}, Call(fail)))
    del fail
    classifier.remove("once")
    classifier.unregister_driver(ctypes.addressof(epochs[0]))
    gc.collect()
    assert lives() is not None
    epochs[1].value = 2
    classifier.insert(FlowRule("next", {}, Drop()))
    gc.collect()
    assert lives() is None


def test_a_count_is_used_again_only_when_no_thread_can_add_to_it() -> None:
    classifier = FlowClassifier(no_group)
    epoch = ctypes.c_uint64(1)
    classifier.register_driver(ctypes.addressof(epoch))
    classifier.insert(FlowRule("first", {}, Drop(), count=True))
    classifier.classify(FRAME)
    classifier.remove("first")
    classifier.insert(FlowRule("second", {}, Drop(), count=True))
    classifier.classify(FRAME)
    assert classifier.read_counters() == {"second": RuleCount(1, len(FRAME))}
    epoch.value = 2
    classifier.insert(FlowRule("third", {}, Drop()))
    classifier.insert(FlowRule("fourth", {"frame.length": 1}, Drop(), count=True))
    assert classifier.read_counters()["fourth"] == RuleCount(0, 0)


def test_a_native_function_gets_frame_context_and_verdict() -> None:
    _, act_on, function = kernels()
    totals = (ctypes.c_uint64 * 3)()
    classifier = FlowClassifier(no_group)
    classifier.insert(FlowRule("native", {}, Call(function, ctypes.addressof(totals)), mark=9, count=True))
    for _ in range(2):
        act_on(classifier.native, FRAME, len(FRAME), Verdict())
    assert list(totals) == [2 * len(FRAME), 4, 18]
    assert classifier.read_counters() == {"native": RuleCount(2, 2 * len(FRAME))}


def test_python_function_gets_a_frame_copy_and_the_verdict() -> None:
    calls: list[tuple[bytes, FlowVerdict]] = []
    classifier = FlowClassifier(no_group)
    classifier.insert(FlowRule("python", {}, Call(lambda frame, verdict: calls.append((frame, verdict))), mark=9))
    kernels()[1](classifier.native, FRAME, len(FRAME), Verdict())
    assert calls == [(FRAME, classifier.classify(FRAME))]
    assert calls[0][1].mark == 9


def test_what_a_python_function_raises_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def fail(frame: bytes, verdict: FlowVerdict) -> None:
        raise ValueError(f"{len(frame)} bytes")

    classifier = FlowClassifier(no_group)
    classifier.insert(FlowRule("python", {}, Call(fail)))
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            kernels()[1](classifier.native, FRAME, len(FRAME), Verdict())
    assert classifier.read_counters() == {"python": RuleCount(0, 0, failures=5)}
    assert [record.getMessage() for record in caplog.records] == [
        f"rule python: its function has failed {count} times" for count in (1, 2, 4)
    ]
    assert "42 bytes" in caplog.text
    classifier.replace(FlowRule("python", {}, Call(fail), mark=1))
    assert classifier.read_counters()["python"].failures == 5


def test_a_python_function_may_change_the_rules_that_called_it() -> None:
    classifier = FlowClassifier(no_group)
    epoch = ctypes.c_uint64(1)
    classifier.register_driver(ctypes.addressof(epoch))

    def once(frame: bytes, verdict: FlowVerdict) -> None:
        classifier.remove("once")

    classifier.insert(FlowRule("once", {}, Call(once)))
    kernels()[1](classifier.native, FRAME, len(FRAME), Verdict())
    assert classifier.rules == ()
    assert classifier.classify(FRAME).rule == 0
