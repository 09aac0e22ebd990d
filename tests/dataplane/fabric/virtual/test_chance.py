"""Loss and jitter of links in virtual time: as configured, without other effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.switch.ports.states import HelloSettings, HelloState
from dataplane.topology.file import loads
from dataplane.topology.values import LinkKey, Topology

MakeFabric = Callable[..., VirtualFabric]
MS = 1_000_000
SECOND = 1_000 * MS
THERE, BACK = LinkKey("s1", "s2"), LinkKey("s2", "s1")
EXACT = loads("""
millrace: 1
name: rough
defaults: {access: {rate: 1 Gbit/s, delay: 10 us}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: a, switch: s1}, {name: b, switch: s2}]
links: [{a: s1, b: s2, rate: 100 Mbit/s, delay: 2 ms}]
""")


def rough(loss_ppb: int = 0, jitter_ns: int = 0) -> Topology:
    """Two switches with a lossy, jittery link between them."""
    links = tuple(
        replace(link, loss_ppb=loss_ppb, jitter_ns=jitter_ns) if link.a.node == "s1" else link for link in EXACT.links
    )
    return replace(EXACT, links=links)


def cross(fabric: VirtualFabric, *, rate_bps: int = 8_000_000, seconds: int = 4) -> tuple[Receiver, Receiver]:
    """Send a flow each way; return what the hosts received."""
    receivers = Receiver(), Receiver()
    for number, (src, dst, receiver) in enumerate((("a", "b", receivers[1]), ("b", "a", receivers[0]))):
        fabric.host(dst).on_frame(receiver.receive)
        fabric.start_flow(src, flow_between(fabric.topology, number, src, dst, rate_bps, stop_ns=seconds * SECOND))
    fabric.run_until((seconds + 1) * SECOND)
    return receivers


def test_links_lose_their_share_independently_each_way(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(rough(loss_ppb=10**8), seed=1)
    at_a, at_b = cross(fabric)
    lost = [fabric.cables[key].counters.lost_by_chance for key in (THERE, BACK)]
    # 4,000 frames each way: 400 and five standard deviations.
    assert all(abs(count - 400) < 5 * (4_000 * 0.1 * 0.9) ** 0.5 for count in lost)
    assert [at_b.measure(0, 0, 5 * SECOND).lost, at_a.measure(1, 0, 5 * SECOND).lost] == lost
    assert lost[0] != lost[1]
    for key in (THERE, BACK):
        counters = fabric.cables[key].counters
        assert (counters.frames, counters.on_the_way) == (4_000, 0)


def test_a_link_that_loses_all_and_one_that_loses_nothing(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(rough(loss_ppb=10**9))
    assert cross(fabric)[1].received_frames(0) == 0
    assert fabric.cables[THERE].counters.lost_by_chance == 4_000
    fabric = make_fabric(rough(jitter_ns=MS))
    assert cross(fabric)[1].received_frames(0) == 4_000


def arrivals(fabric: VirtualFabric, **flow: int) -> list[tuple[int, int]]:
    """Return sequence and delay of all arrivals at `b`, in order."""
    seen: list[tuple[int, int]] = []
    receiver = Receiver()

    def note(frame: bytes, now_ns: int) -> None:
        probe = receiver.receive(frame, now_ns)
        if probe is not None and probe.flow_id == 0:
            seen.append((probe.sequence, now_ns - probe.sent_ns))

    fabric.host("b").on_frame(note)
    cross(fabric, **flow)
    return seen


def test_jitter_is_uniform_around_the_delay(make_fabric: MakeFabric) -> None:
    plain = {delay for _, delay in arrivals(make_fabric(EXACT))}
    assert len(plain) == 1
    delays = [delay - min(plain) for _, delay in arrivals(make_fabric(rough(jitter_ns=200_000), seed=2))]
    assert -200_000 <= min(delays) < -199_000
    assert 199_000 < max(delays) <= 200_000
    assert abs(sum(delays) / len(delays)) < 5 * 400_000 / 12**0.5 / len(delays) ** 0.5


def test_nothing_overtakes_however_large_the_jitter(make_fabric: MakeFabric) -> None:
    seen = arrivals(make_fabric(rough(jitter_ns=2 * MS), seed=3), rate_bps=80_000_000, seconds=1)
    assert [sequence for sequence, _ in seen] == list(range(10_000))
    assert len({delay for _, delay in seen}) > 100


def test_the_same_seed_loses_the_same_and_another_one_not(make_fabric: MakeFabric) -> None:
    runs = [
        [sequence for sequence, _ in arrivals(make_fabric(rough(10**8, jitter_ns), seed=seed), seconds=1)]
        for seed, jitter_ns in ((1, 0), (1, 0), (1, MS), (2, 0))
    ]
    assert runs[0] == runs[1]
    assert runs[0] == runs[2], "how late frames are changes which are lost"
    assert runs[0] != runs[3]


def test_hellos_do_not_change_the_losses_of_traffic(make_fabric: MakeFabric) -> None:
    silent, talking = (make_fabric(rough(10**8), seed=4) for _ in range(2))
    for name in ("s1", "s2"):
        talking.switch(name).set_hello(2, HelloSettings())
    expected = arrivals(silent)
    assert [sequence for sequence, _ in arrivals(talking)] == [sequence for sequence, _ in expected]


@pytest.mark.parametrize(("loss_ppb", "stays"), [(10**7, True), (9 * 10**8, False)])
def test_hellos_are_lost_as_frames_are(make_fabric: MakeFabric, loss_ppb: int, stays: bool) -> None:
    fabric = make_fabric(rough(loss_ppb), seed=5)
    states: list[HelloState] = []
    fabric.switch("s1").add_port_listener(lambda state: states.append(state.hello.state if state.hello else None))  # type: ignore[arg-type]
    for name in ("s1", "s2"):
        fabric.switch(name).set_hello(2, HelloSettings(20 * MS, 3))
    fabric.run_until(60 * SECOND)
    assert (states.count(HelloState.DOWN) <= 1) is stays
    hello = fabric.switch("s1").port_states()[2].hello
    assert hello is not None
    assert 0 < hello.received < hello.sent or loss_ppb > 5 * 10**8
