"""The loop of a driver thread: sends queued packets, takes bursts, classifies frames and hands them out."""

from __future__ import annotations

from dataplane.clock import NS_PER_S
from dataplane.native import (
    Array,
    address,
    array_at,
    as_i64,
    as_u32,
    as_u64,
    fence,
    i64,
    invoke,
    kernel,
    load_acquire,
    pause,
    prefetch,
    stack_array,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import arm_bell, disarm_bell, read
from dataplane.nic.buffers.kernels.transmitting import has_to_transmit, transmit
from dataplane.nic.driver.driver_state import Counts, DriverState
from dataplane.nic.driver.kernels.polling import AT_ONCE, UNTIL_WOKEN, begin_pacing, pace
from dataplane.nic.flows.kernels.classifying import classify
from dataplane.nic.manager.kernels.distribute import distribute, publish
from dataplane.nic.ports.kernels.dispatch import is_readable, receive, release
from dataplane.nic.ports.kernels.system import CLOCK_MONOTONIC, clock_nanosleep, monotonic_ns
from dataplane.nic.ports.kernels.waiting import RETRY_NS, wait
from dataplane.nic.ports.queue import PortQueue
from dataplane.nic.structures import ActionKind, FrameFunction

FOREVER = -1
PREFETCHED_FRAMES = 4
SPINS_PER_EMPTY_POLL = 4


@kernel
def drive(driver: DriverState) -> None:
    """Move frames until `stop` is set; also returns soon after that if the bell is rung."""
    begin_pacing(driver.pacer[0], monotonic_ns())
    while load_acquire(driver.stop) == 0:
        moved: u32 = turn(driver)
        now_ns: u64 = monotonic_ns()
        idle_ns: u64 = pace(driver.pacer[0], now_ns, moved, driver.full)
        if idle_ns == UNTIL_WOKEN:
            sleep(driver)
            begin_pacing(driver.pacer[0], monotonic_ns())
        elif idle_ns != AT_ONCE:
            rest(driver, idle_ns)
        elif moved == 0:
            for _ in range(SPINS_PER_EMPTY_POLL):
                pause()


@kernel
def turn(driver: DriverState) -> u32:
    """Do all the work that can be done now; return how many frames came or went."""
    begin_turn(driver)
    driver.full = 0
    batch: u32 = driver.pacer[0].batch
    sent: u32 = transmit(driver.manager, view(PortQueue, driver.queues[0]), batch)
    if sent == batch:
        driver.full = 1
    driver.sent += as_u64(sent)
    received: u32 = 0
    index: u32 = 0
    while index < driver.queue_count:
        count: u32 = take_burst(driver, view(PortQueue, driver.queues[index]), driver.numbers[index], batch)
        if count == batch:
            driver.full = 1
        received += count
        index += 1
    publish(driver.manager)
    driver.polls += 1
    if received == 0:
        driver.empty_polls += 1
    end_turn(driver)
    return sent + received


@kernel(inline=True)
def begin_turn(driver: DriverState) -> None:
    """Begin an epoch: tables replaced from now on may be in use."""
    store_release(driver.epoch, driver.epoch + 1)
    fence()


@kernel(inline=True)
def end_turn(driver: DriverState) -> None:
    """End the epoch: no table is in use."""
    store_release(driver.epoch, driver.epoch + 1)


@kernel(inline=True)
def take_burst(driver: DriverState, queue: PortQueue, number: u32, batch: u32) -> u32:
    """Take up to `batch` frames from a queue and process each to its end; return how many."""
    count: u32 = receive(queue, driver.frames, driver.lengths, batch)
    if count > 0:
        driver.stamp[0].queue = number
        settle_burst(driver, count)
        release(queue)
    return count


@kernel
def settle_burst(driver: DriverState, count: u32) -> None:
    """Process each frame of a burst to its end, and count them together."""
    nbytes: u64 = 0
    called: u64 = 0
    handed_out: u64 = 0
    dropped: u64 = 0
    closing: u64 = 0
    verdict = driver.verdict[0]
    stamp = driver.stamp[0]
    i: u32 = 0
    while i < count:
        if i + PREFETCHED_FRAMES < count:
            prefetch(array_at(u8, driver.frames[i + PREFETCHED_FRAMES]))
        frame: Array[u8] = array_at(u8, driver.frames[i])
        length: u32 = driver.lengths[i]
        nbytes += as_u64(length)
        classify(driver.classifier, frame, length, stamp.queue, verdict)
        if verdict.action == ActionKind.CALL:
            # A function may be slow: a thread asked to stop does not call it for the rest of a burst.
            if load_acquire(driver.stop) == 0:
                invoke(FrameFunction, verdict.function, verdict.context, address(frame), length, address(verdict))
                called += 1
            else:
                closing += 1
        elif verdict.action == ActionKind.DROP:
            dropped += 1
        else:
            stamp.time_ns = driver.stamps[i]
            stamp.kind = as_u32(driver.stamp_kinds[i])
            if distribute(driver.manager, verdict, frame, length, stamp):
                handed_out += 1
        i += 1
    counts = driver.counts[0]
    store_release(counts.version, counts.version + 1)
    fence()
    counts.received += as_u64(count)
    counts.received_bytes += nbytes
    counts.called += called
    counts.handed_out += handed_out
    counts.dropped_by_rule += dropped
    counts.closing += closing
    counts.not_handed_out += as_u64(count) - called - handed_out - dropped - closing
    store_release(counts.version, counts.version + 1)


# ---- nothing to do


@kernel(inline=False)
def rest(driver: DriverState, pause_ns: u64) -> None:
    """Sleep for a pause between two polls; nothing wakes the thread early."""
    duration = stack_array(i64, 2)
    duration[0] = as_i64(pause_ns // NS_PER_S)
    duration[1] = as_i64(pause_ns % NS_PER_S)
    driver.pauses += 1
    clock_nanosleep(CLOCK_MONOTONIC, 0, duration, array_at(i64, 0))


@kernel(inline=False)
def sleep(driver: DriverState) -> None:
    """Sleep until the device or the bell has something.

    A packet that the device had no room for is retried soon.
    """
    arm_bell(driver.bell)
    begin_turn(driver)
    timeout_ns: i64 = RETRY_NS if has_to_transmit(driver.manager) else FOREVER
    end_turn(driver)
    if not has_something(driver):
        driver.is_waiting = 1
        ready: u32 = wait(driver.queues, driver.queue_count, driver.bell.fd, timeout_ns)
        driver.is_waiting = 0
        driver.wakeups += 1
        heard = stack_array(u64, 1)
        if ready > 0 and (ready > 1 or read(driver.bell.fd, heard, 8) < 0):
            driver.interrupts += 1
    disarm_bell(driver.bell)


@kernel(inline=True)
def has_something(driver: DriverState) -> bool:
    """Return whether a queue has frames by now, or the thread must stop."""
    index: u32 = 0
    while index < driver.queue_count:
        if is_readable(view(PortQueue, driver.queues[index])):
            return True
        index += 1
    return load_acquire(driver.stop) != 0


# ---- read from other threads


@kernel
def read_counts(driver: DriverState, read_into: Counts) -> None:
    """Copy a consistent snapshot of the counts."""
    counts = driver.counts[0]
    while True:
        version: u64 = load_acquire(counts.version)
        read_into.version = version
        read_into.received = counts.received
        read_into.received_bytes = counts.received_bytes
        read_into.called = counts.called
        read_into.handed_out = counts.handed_out
        read_into.dropped_by_rule = counts.dropped_by_rule
        read_into.closing = counts.closing
        read_into.not_handed_out = counts.not_handed_out
        fence()
        if (version & 1) == 0 and load_acquire(counts.version) == version:
            break
        pause()
