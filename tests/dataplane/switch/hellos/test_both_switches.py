"""Hellos on both switches: the same messages bring a session up and down, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataplane.errors import SwitchError
from dataplane.program.operations import Assign, Constant, FieldRef
from dataplane.switch.counters import HELLO_FORGED
from dataplane.switch.hellos import frames, session
from dataplane.switch.hellos.session import HelloDrop
from dataplane.switch.ports.states import Diagnostic, HelloSettings, HelloState, OperStatus, PortState
from dataplane.wire.bfd import Bfd, State
from tests.dataplane.switch.compiler.synthetic import program_with
from tests.dataplane.switch.hellos.conftest import BRISK, DEVICE, NEIGHBOUR, Rig

UP = HelloState.UP
PATIENT = HelloSettings(interval_ns=100_000_000, multiplier=250)
LOOKS_LIKE_ONE = frames.DESTINATION.to_bytes(6, "big")
TYPE = frames.ETHER_TYPE.to_bytes(2, "big")


def come_up(rig: Rig, port: int, ours: HelloSettings = BRISK, theirs: HelloSettings = BRISK) -> None:
    neighbour = rig.meet(port, theirs)
    rig.switch.set_hello(port, ours)
    rig.until(lambda: rig.hello(port).remote_state is rig.hello(port).state is UP is neighbour.session.state, "not up")


@pytest.mark.parametrize("port", [1, 3])
def test_neighbours_come_up_and_silence_takes_them_down(rig: Rig, port: int) -> None:
    seen: list[PortState] = []
    remove = rig.switch.add_port_listener(seen.append)
    come_up(rig, port)
    told = rig.hello(port)
    assert (told.remote_state, told.diagnostic) == (UP, Diagnostic.NO_DIAGNOSTIC)
    assert told.local_discriminator == frames.discriminator(DEVICE, port)
    assert told.remote_discriminator == frames.discriminator(NEIGHBOUR, port)
    rig.until(lambda: rig.hello(port).received > 20 and rig.hello(port).sent > 20, "few hellos")
    del rig.neighbours[port]
    rig.until(lambda: rig.hello(port).state is HelloState.DOWN, "a silent neighbour is up")
    lost = rig.hello(port)
    assert (lost.diagnostic, lost.is_lost) == (Diagnostic.CONTROL_DETECTION_EXPIRED, True)
    assert lost.since_ns - told.since_ns >= BRISK.multiplier * BRISK.interval_ns
    assert not rig.switch.port_states()[port].is_usable
    rig.until(lambda: bool(seen) and seen[-1].hello is not None and seen[-1].hello.is_lost, "nobody was told")
    remove()
    come_up(rig, port)
    states = [state.hello.state for state in seen if state.hello is not None and state.port == port]
    assert states[0] is states[-1] is HelloState.DOWN
    assert UP in states
    assert not any(counters.rx_frames or counters.tx_frames for counters in rig.switch.port_counters().values())


def test_a_neighbour_that_does_not_hear_us_takes_the_link_down(rig: Rig) -> None:
    """Everything dropped one way: their end times out, says so, and ours goes down, too."""
    come_up(rig, 1, PATIENT, PATIENT)
    neighbour, seen = rig.neighbours[1], list[Diagnostic]()
    rig.switch.add_port_listener(lambda state: seen.append(state.hello.diagnostic) if state.hello else None)
    neighbour.adopt(session.expire(neighbour.session, rig.clock.now_ns()), rig.clock.now_ns())
    # They may have found each other again before the check.
    rig.until(lambda: Diagnostic.NEIGHBOR_SIGNALED_DOWN in seen, "ours did not notice")
    assert not rig.hello(1).drops


def test_disabled_port_tells_its_neighbour_and_comes_back(rig: Rig) -> None:
    come_up(rig, 1, PATIENT, PATIENT)
    neighbour = rig.neighbours[1]
    rig.switch.set_admin(1, False)
    rig.until(lambda: neighbour.session.remote_state is HelloState.ADMIN_DOWN, "the neighbour was not told")
    assert neighbour.session.describe().is_lost
    state = rig.switch.port_states()[1]
    assert (state.admin_up, state.is_open, state.oper) == (False, False, OperStatus.UP)
    rig.send(1, [bytes(60)])
    rig.until(lambda: rig.switch.port_counters()[1].drops == {"port_down": 1}, "not dropped")
    rig.switch.set_admin(1, True)
    rig.until(lambda: rig.hello(1).state is UP and neighbour.session.state is UP, "did not come back")


def test_a_switch_that_goes_tells_every_neighbour_at_once(rig: Rig) -> None:
    for port in (1, 3):
        come_up(rig, port, PATIENT, PATIENT)
    rig.switch.take_leave()
    left = [neighbour.session for neighbour in rig.neighbours.values()]
    rig.until(lambda: all(n.session.remote_state is HelloState.ADMIN_DOWN for n in rig.neighbours.values()), "not told")
    assert all(session.state is UP for session in left)  # without waiting for silence
    assert all(neighbour.session.describe().is_lost for neighbour in rig.neighbours.values())
    assert all(state.admin_up for state in rig.switch.port_states().values())
    assert rig.hello(1).state is HelloState.ADMIN_DOWN


def test_hellos_that_end_are_no_loss(rig: Rig) -> None:
    come_up(rig, 1, PATIENT, PATIENT)
    neighbour = rig.neighbours[1]
    rig.switch.set_hello(1, None)
    rig.until(lambda: neighbour.session.remote_state is HelloState.ADMIN_DOWN, "the neighbour was not told")
    assert not neighbour.session.describe().is_lost
    assert rig.switch.port_states()[1].hello is None
    rig.send(1, [LOOKS_LIKE_ONE + bytes(6) + TYPE + bytes(46)])
    rig.until(lambda: "no_program" in rig.switch.port_counters()[1].drops, "a frame was taken for a hello")
    rig.switch.set_hello(1, None)
    come_up(rig, 1, PATIENT, PATIENT)


def test_other_settings_are_told_and_kept_to(rig: Rig) -> None:
    come_up(rig, 1, PATIENT, PATIENT)
    neighbour = rig.neighbours[1]
    before = rig.hello(1).since_ns
    rig.switch.set_hello(1, HelloSettings(20_000_000, 7))
    rig.until(lambda: neighbour.session.remote_min_tx_us == 20_000, "the neighbour was not told")
    assert neighbour.session.detection_ns == 7 * PATIENT.interval_ns
    assert (rig.hello(1).state, rig.hello(1).since_ns) == (UP, before)
    assert rig.hello(1).settings == HelloSettings(20_000_000, 7)


def test_what_only_looks_like_a_hello_is_counted_and_is_no_life(rig: Rig) -> None:
    come_up(rig, 1, PATIENT, PATIENT)
    header = frames.encode(NEIGHBOUR, 1, rig.neighbours[1].session.packet())[: frames.PACKET_OFFSET]
    ours, theirs = frames.discriminator(DEVICE, 1), frames.discriminator(NEIGHBOUR, 1)
    fake = Bfd(State.DOWN, 3, theirs, ours, 50_000, 50_000)
    wrong = [
        (header, HelloDrop.MALFORMED),
        (header + fake.encode()[:23], HelloDrop.MALFORMED),
        (header + b"\xff" * 30, HelloDrop.MALFORMED),
        (header + replace(fake, my_discriminator=ours).encode(), HelloDrop.REFLECTED),
        (header + replace(fake, your_discriminator=ours + 1).encode(), HelloDrop.NOT_FOR_US),
        (header + replace(fake, my_discriminator=theirs + 1).encode(), HelloDrop.STRANGER),
    ]
    for number, (frame, _) in enumerate(wrong, 1):
        rig.send(1, [frame])
        rig.until(lambda number=number: sum(rig.hello(1).drops.values()) == number, "not counted")  # type: ignore[misc]
    expected: dict[str, int] = {}
    for _, name in wrong:
        expected[name] = expected.get(name, 0) + 1
    assert rig.hello(1).drops == expected
    assert rig.hello(1).state is UP
    assert rig.switch.port_counters()[1].rx_frames == 0


def test_our_own_hellos_coming_back_bring_nothing_up(rig: Rig) -> None:
    rig.switch.set_hello(1, BRISK)
    for _ in range(3):
        rig.until(lambda: bool(rig.traffic[1]), "no hello")
        rig.send(1, [rig.traffic[1].pop()])
        rig.switch.set_hello(1, replace(BRISK, multiplier=4 + _))
    rig.until(lambda: rig.hello(1).drops.get(HelloDrop.REFLECTED, 0) == 3, "a reflected hello was not counted")
    assert (rig.hello(1).state, rig.hello(1).is_lost) == (HelloState.DOWN, False)


def test_hellos_are_not_counted_and_forged_ones_are_dropped(rig: Rig) -> None:
    to_port_2 = Assign(FieldRef("standard_metadata", "egress_spec"), Constant(2))
    rig.switch.commit(program_with([[to_port_2]], digest="0f0e11e7"))
    for port in (1, 2):
        come_up(rig, port, PATIENT, PATIENT)
    plain, forged = bytes(12) + b"\x12\x34" + bytes(200), LOOKS_LIKE_ONE + bytes(6) + TYPE + bytes(200)
    rig.send(3, [plain, forged, plain])
    rig.send(1, [plain])
    rig.until(lambda: len(rig.traffic[2]) == 3, "traffic was lost")
    assert [frame[12:14] for frame in rig.traffic[2]] == [b"\x12\x34"] * 3
    counters = rig.switch.port_counters()
    assert (counters[3].rx_frames, counters[1].rx_frames, counters[2].tx_frames) == (3, 1, 3)
    assert counters[2].drops == {HELLO_FORGED: 1}
    assert rig.hello(2).state is UP


def test_ports_that_are_not_there_are_named(rig: Rig) -> None:
    for port in (9, 255):
        with pytest.raises(SwitchError, match=f"switch 1 has no port {port}"):
            rig.switch.set_hello(port, BRISK)
        with pytest.raises(SwitchError, match=f"switch 1 has no port {port}"):
            rig.switch.set_admin(port, False)
    assert set(rig.switch.port_states()) == {1, 2, 3}
