"""STAMP: golden packets, delays of links by sessions, and real senders and reflectors on loopback."""

from __future__ import annotations

import asyncio
import logging
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.stamp.links import StampLinks, Trip
from collectors.stamp.reflector import Reflector
from collectors.stamp.sender import StampSender, host_and_port
from collectors.stamp.settings import StampSessionSettings, StampSettings
from collectors.values import DelaySource, LinkState
from dataplane.clock import MonotonicClock, VirtualClock
from dataplane.errors import WireError
from dataplane.topology.values import LinkKey
from dataplane.wire import stamp
from tests.collectors.reports import MICRO, build_topology
from tests.waiting import HANG_S, until

REQUEST = bytes.fromhex("00000007 6553f100 0000002a 4001" + "00" * 30)
ANSWER = bytes.fromhex(
    "00000007 6553f101 00000064 4001 0000 6553f100 000003e8 00000007 6553f100 0000002a 4001 0000 40 000000"
)
AT_NS = 1_700_000_000 * 10**9
PATH = ("s1", "s2", "s3")


def test_packets_are_those_of_the_specification() -> None:
    request = stamp.Request.at(7, AT_NS + 42)
    answer = stamp.Answer(7, AT_NS + 1000, AT_NS + 10**9 + 100, request, 64)
    assert (request.encode(), answer.encode()) == (REQUEST, ANSWER)
    assert (stamp.decode_request(REQUEST), stamp.decode_answer(ANSWER)) == (request, answer)
    assert len(REQUEST) == len(ANSWER) == stamp.SIZE


def test_signed_packets_need_their_key() -> None:
    request = stamp.Request.at(7, AT_NS)
    answer = stamp.Answer(7, AT_NS + 1, AT_NS + 2, request, 64)
    for value, decode in ((request, stamp.decode_request), (answer, stamp.decode_answer)):
        packet = value.encode(b"key")
        assert (len(packet), decode(packet, b"key")) == (stamp.AUTHENTICATED_SIZE, value)
        for wrong in (packet[:20] + b"\xff" + packet[21:], value.encode(b"other")):
            with pytest.raises(WireError, match="not signed with our key"):
                decode(wrong, b"key")


def test_times_of_ntp_are_read_and_repeated() -> None:
    request = stamp.decode_request(bytes.fromhex("00000001 e8fe6f80 80000000 0001" + "00" * 30))
    assert request.sent_ns == AT_NS + 500_000_000
    assert stamp.Answer(1, 0, 0, request, 1).encode()[28:38] == bytes.fromhex("e8fe6f80 80000000 0001")


def _settings(*paths: tuple[str, ...]) -> StampSettings:
    return StampSettings(tuple(StampSessionSettings("127.0.0.1", path) for path in paths))


def _links(settings: StampSettings, *trips: Trip | None) -> dict[LinkKey, LinkState]:
    topology, clock = build_topology(), VirtualClock()
    collector, links = Collector(topology, clock), StampLinks(topology, settings)
    collector.complete_by(links.complete)
    links.take(trips, clock.now_ns())
    return dict(collector.snapshot().links)


def _there_and_back(path: tuple[str, ...], there_ns: int, back_ns: int) -> Trip:
    """Return a trip that takes so much longer than propagation."""
    known = build_topology().directed_links
    there = sum(known[LinkKey(*ends)].delay_ns for ends in pairwise(path))
    back = sum(known[LinkKey(far, near)].delay_ns for near, far in pairwise(path))
    return Trip(there + there_ns, back + back_ns)


def test_what_a_longer_session_takes_more_is_its_last_links() -> None:
    trips = _there_and_back(PATH[:2], 3 * MICRO, 5 * MICRO), _there_and_back(PATH, 10 * MICRO, 6 * MICRO)
    found, topology = _links(_settings(PATH[:2], PATH), *trips), build_topology()
    beyond = {key: found[key].delay_mean_ns - topology.directed_links[key].delay_ns for key in found}
    measured = {key: beyond_ns for key, beyond_ns in beyond.items() if found[key].source is DelaySource.PROBES}
    expected = {"s1->s2": 3, "s2->s1": 5, "s2->s3": 7, "s3->s2": 1}
    assert measured == {LinkKey(*name.split("->")): micro * MICRO for name, micro in expected.items()}


@pytest.mark.parametrize(
    ("paths", "trips"),
    [
        ((PATH,), (_there_and_back(PATH, 1, 1),)),
        ((PATH[:2], PATH), (None, _there_and_back(PATH, 1, 1))),
        ((PATH[:2],), (None,)),
    ],
    ids=["two cables", "no answer before", "no answer"],
)
def test_nothing_is_said_of_what_was_not_measured(
    paths: tuple[tuple[str, ...], ...], trips: tuple[Trip | None, ...]
) -> None:
    assert all(link.source is DelaySource.NOMINAL for link in _links(_settings(*paths), *trips).values())


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ((("s1", "s9"),), r"stamp.sessions\[0\].path: there is no link from s1 to s9"),
        ((("s1",),), r"stamp.sessions\[0\].path: a path has two nodes"),
        ((PATH, PATH), r"stamp.sessions\[1\].path: s1 s2 s3 is that of another session"),
    ],
)
def test_paths_that_do_not_fit_are_one_line(paths: tuple[tuple[str, ...], ...], problem: str) -> None:
    with pytest.raises(CollectorError, match=problem):
        StampLinks(build_topology(), _settings(*paths))


@pytest.mark.parametrize(
    ("address", "parts"),
    [("10.0.0.1", ("10.0.0.1", 862)), ("10.0.0.1:99", ("10.0.0.1", 99)), ("[fd00::1]:99", ("fd00::1", 99))],
)
def test_addresses_have_stamps_port_by_default(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address, "x") == parts


@pytest.mark.parametrize("secret", [None, b"a key\n"])
def test_a_sender_measures_by_a_reflector(
    tmp_path: Path, secret: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A forged answer changes nothing; a reflector that goes away is told of once."""
    key_file = None
    if secret is not None:
        (tmp_path / "key").write_bytes(secret)
        key_file = str(tmp_path / "key")

    async def scenario() -> tuple[LinkState, Collector]:
        collector = Collector(build_topology(), MonotonicClock())
        reflector = Reflector("127.0.0.1", 0, None if secret is None else secret.strip())
        session = StampSessionSettings(f"127.0.0.1:{reflector.port}", PATH[:2], key_file=key_file)
        settings = StampSettings((session,), interval_ns=20_000_000, timeout_ns=50_000_000)
        sender = StampSender(collector, build_topology(), settings, MonotonicClock())
        answering = asyncio.create_task(reflector.run())
        running = asyncio.create_task(sender.run())
        try:
            key = LinkKey("s1", "s2")
            await until(lambda: collector.snapshot().links[key].source is DelaySource.PROBES, "no delay")
            link = collector.snapshot().links[key]
            answering.cancel()
            await until(lambda: "does not answer" in caplog.text, "nobody missed the reflector")
            return link, collector
        finally:
            for task in (answering, running):
                task.cancel()
            await asyncio.wait([answering, running], timeout=HANG_S)

    with caplog.at_level(logging.WARNING):
        link, collector = asyncio.run(scenario())
    assert link.delay_mean_ns >= build_topology().directed_links[link.link].delay_ns
    assert collector.counters[Count.STAMP_UNANSWERED] > 0


def test_what_answers_no_probe_is_counted() -> None:
    async def scenario() -> Collector:
        collector = Collector(build_topology(), MonotonicClock())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.bind(("127.0.0.1", 0))
            session = StampSessionSettings(f"127.0.0.1:{forger.getsockname()[1]}", PATH[:2])
            sender = StampSender(collector, build_topology(), StampSettings((session,)), MonotonicClock())
            running = asyncio.create_task(sender.run())
            try:
                forger.setblocking(False)
                data, address = await asyncio.get_running_loop().sock_recvfrom(forger, 2048)
                asked = stamp.decode_request(data)
                forger.sendto(stamp.Answer(1, 0, 0, stamp.Request(asked.sequence, 0), 1).encode(), address)
                forger.sendto(b"short", address)
                counts = collector.counters
                await until(lambda: min(counts[Count.STAMP_LATE], counts[Count.STAMP_MALFORMED]) > 0, "not counted")
            finally:
                running.cancel()
                await asyncio.wait([running], timeout=HANG_S)
        return collector

    collector = asyncio.run(scenario())
    assert collector.snapshot().links[LinkKey("s1", "s2")].source is DelaySource.NOMINAL


def test_a_reflector_answers_at_the_same_length_to_its_key() -> None:
    async def scenario() -> tuple[bytes, int]:
        reflector = Reflector("127.0.0.1", 0, b"key")
        answering = asyncio.create_task(reflector.run())
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.connect(("127.0.0.1", reflector.port))
            await loop.sock_sendall(sender, REQUEST)
            await loop.sock_sendall(sender, stamp.Request.at(9, AT_NS).encode(b"key") + bytes(388))
            data = await loop.sock_recv(sender, 2048)
        answering.cancel()
        await asyncio.wait([answering], timeout=HANG_S)
        return data, reflector.refused

    data, refused = asyncio.run(scenario())
    answer = stamp.decode_answer(data, b"key")
    assert (len(data), answer.sequence, refused) == (500, 9, 1)
    assert answer.received_ns <= answer.sent_ns
