"""The engine's loop: send as far as the window allows, receive, wait."""

from __future__ import annotations

from dataplane.allreduce.kernels.datagrams import receive_datagrams, send_datagrams, wait_for_datagrams
from dataplane.allreduce.kernels.framing import receive_frames, send_frames, wait_for_frames
from dataplane.allreduce.kernels.layouts import BURST, EngineState, Reading, State, Status
from dataplane.allreduce.kernels.loss_recovery import NEVER, find_lost, look_at_timers, next_timer, note_sent, push
from dataplane.allreduce.kernels.pacing import PACKET
from dataplane.allreduce.kernels.reading import line_up
from dataplane.allreduce.kernels.receive import take_epoch
from dataplane.allreduce.kernels.replay import gather_behind, gather_kept
from dataplane.allreduce.kernels.send_schedule import DEFERRED, READY, generate, is_generated, slot_of, write_question
from dataplane.native import address, as_u32, as_u64, kernel, u32, u64
from dataplane.nic.ports.kernels.system import monotonic_ns

_LONGEST_WAIT_NS = 20_000_000
"""Maximum wait before `stop` is checked."""
_FIRST_QUESTION_NS, _QUESTION_NS = 5_000_000, 250_000_000
"""Shortest and longest interval in which the main server asks where the workers are."""


@kernel
def run_engine(engine: EngineState) -> None:
    """Run an all-reduce until `status` is set."""
    engine.status = Status.RUNNING
    while goes_on(engine):
        read_time(engine)
        if not turn(engine) and goes_on(engine):
            wait(engine)
        if goes_on(engine):
            check_limits(engine)


@kernel
def seek_call(engine: EngineState) -> None:
    """Wait, as the main server, until all workers wait for it, however long that takes; `status` as `run_engine`."""
    engine.status = Status.RUNNING
    pause_ns: u64 = _FIRST_QUESTION_NS
    read_time(engine)
    engine.probe_at_ns = engine.now_ns
    while goes_on(engine):
        if engine.now_ns >= engine.probe_at_ns:
            # The call comes unrequested, unless it was lost or came before this program.
            write_question(engine)
            engine.tx_items[0] = engine.next_item
            send_gathered(engine, 1)
            engine.probe_at_ns = engine.now_ns + pause_ns
            pause_ns = min(2 * pause_ns, _QUESTION_NS)
        if receive(engine) == 0 and goes_on(engine):
            wait(engine)
        read_time(engine)
        engine.patient_from_ns = engine.now_ns
        if goes_on(engine):
            check_limits(engine)
    engine.probe_at_ns = NEVER


@kernel
def turn(engine: EngineState) -> bool:
    """Send, receive, and check timers; return whether there may be more to do at once."""
    transmit(engine)
    if goes_on(engine) and engine.unfinished == 0 and is_generated(engine):
        engine.status = Status.SATURATED if engine.saturated != 0 else Status.DONE
    if not goes_on(engine):
        return False
    got: u32 = receive(engine)
    if got > 0:
        find_lost(engine)
    if next_timer(engine) <= engine.now_ns:
        look_at_timers(engine)
        revive(engine)
        return True
    return got > 0


@kernel(inline=True)
def has_socket(engine: EngineState) -> bool:
    """Return whether packets go through a UDP socket."""
    return address(engine.queue) == 0


@kernel(inline=True)
def read_time(engine: EngineState) -> None:
    """Read the clock."""
    if engine.own_clock == 0:
        engine.now_ns = monotonic_ns()


@kernel(inline=True)
def goes_on(engine: EngineState) -> bool:
    """Return whether nothing has happened that the caller must know."""
    return engine.status == Status.RUNNING


@kernel
def check_limits(engine: EngineState) -> None:
    """Return to the caller on `stop`, in another epoch, or when nothing has arrived for too long."""
    if engine.stop != 0:
        engine.status = Status.STOPPED
        return
    if engine.now_ns >= engine.pause_at_ns:
        engine.status = Status.PAUSED
    take_epoch(engine, engine.wanted_epoch)
    if engine.held_until_ns != 0:
        engine.patient_from_ns = engine.now_ns
        if engine.now_ns >= engine.held_until_ns:
            engine.bad_item = oldest(engine)
            engine.status = Status.HELD
    elif engine.now_ns - max(engine.last_result_ns, engine.patient_from_ns) > engine.patience_ns:
        engine.bad_item = oldest(engine)
        engine.status = Status.DEADLINE


@kernel
def oldest(engine: EngineState) -> u32:
    """Return the oldest item without a result."""
    item: u32 = engine.next_item
    for at in range(as_u64(engine.window)):
        slot = engine.slots[at]
        if slot.state != State.DONE and engine.next_item - slot.item > engine.next_item - item:
            item = slot.item
    return item


@kernel
def transmit(engine: EngineState) -> None:
    """Send retransmissions, then new items, as far as both windows and the socket allow."""
    engine.blocked = 0
    while engine.blocked == 0 and goes_on(engine):
        room: u32 = as_u32(engine.congestion_window // PACKET)
        if engine.may_probe != 0 and engine.pending_count > 0:
            room = max(room, engine.in_flight + 1)
            engine.may_probe = 0
        count: u32 = 0
        while count < BURST and engine.in_flight + count < room:
            if engine.pending_count == 0 and not generated(engine):
                break
            item: u32 = pop(engine)
            if slot_of(engine, item).item == item and slot_of(engine, item).state == State.READY:
                engine.tx_items[count] = item
                count += 1
        if count == 0:
            return
        send_burst(engine, count)


@kernel(inline=True)
def generated(engine: EngineState) -> bool:
    """Queue the next item that may be sent, if there is one."""
    while True:
        item: u32 = engine.next_item
        what: u32 = generate(engine)
        if what == READY:
            line_up(engine, item)
        if what != DEFERRED and (what != READY or engine.reading != Reading.LISTENING):
            return what == READY


@kernel(inline=True)
def pop(engine: EngineState) -> u32:
    """Dequeue the first item."""
    item: u32 = engine.pending[engine.pending_first]
    engine.pending_first = (engine.pending_first + 1) & (engine.window - 1)
    engine.pending_count -= 1
    return item


@kernel
def send_burst(engine: EngineState, count: u32) -> None:
    """Send the gathered packets; those without room stay queued."""
    taken: u32 = send_gathered(engine, count)
    for at in range(as_u64(count)):
        item: u32 = engine.tx_items[at]
        if as_u32(at) < taken:
            note_sent(engine, slot_of(engine, item))
        else:
            push(engine, item)
    if taken < count:
        engine.blocked = 1


@kernel
def revive(engine: EngineState) -> None:
    """Send what a restarted switch may lack."""
    count: u32 = gather_kept(engine, oldest(engine))
    if count > 0:
        engine.repeated += as_u64(send_gathered(engine, count))


@kernel
def offer_kept(engine: EngineState, item: u32) -> None:
    """Send a few of the items behind this one, different ones each time, while no all-reduce is running."""
    count: u32 = gather_behind(engine, item)
    if count > 0:
        engine.repeated += as_u64(send_gathered(engine, count))


@kernel(inline=True)
def send_gathered(engine: EngineState, count: u32) -> u32:
    """Send the gathered packets; return how many were sent."""
    return send_datagrams(engine, count) if has_socket(engine) else send_frames(engine, count)


@kernel(inline=True)
def receive(engine: EngineState) -> u32:
    """Receive at most one burst; return the number of packets."""
    read_time(engine)
    got: u32 = receive_datagrams(engine) if has_socket(engine) else receive_frames(engine)
    engine.received += as_u64(got)
    return got


@kernel
def wait(engine: EngineState) -> None:
    """Wait for a packet, for room to send if there is none, or for the next timer."""
    until: u64 = min(next_timer(engine), engine.now_ns + _LONGEST_WAIT_NS)
    if has_socket(engine):
        wait_for_datagrams(engine, until - engine.now_ns)
    else:
        wait_for_frames(engine, until - engine.now_ns)
