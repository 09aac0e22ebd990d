"""Clones, replicas, resubmission, recirculation, truncation: copies.p4 writes what each passage of egress sees."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from dataplane.switch.tables import CloneSession, Replica
from dataplane.switch.v1model import MAX_RESUBMITS
from tests.dataplane.switch.interpreter.harness import Bench, MakeBench

SEEN = struct.Struct("!BBBBBBHBBH")
NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICA, RESUBMITTED = 0, 1, 2, 4, 5, 6
PAYLOAD = bytes(range(100, 130))


@dataclass(frozen=True)
class Seen:
    """Values that one pass through egress wrote."""

    instance_type: int
    egress_port: int
    replica: int
    kept: int
    lost: int
    ingress_port: int
    packet_length: int
    queue_depth: int
    waited_us: int
    passage_us: int


def order(ingress: int, egress: int, argument: int) -> bytes:
    return bytes([ingress, egress, argument]) + PAYLOAD


def read(sent: tuple[int, bytes]) -> tuple[Seen, bytes]:
    """Return the values seen, and the order and payload behind them; check the port."""
    seen = Seen(*SEEN.unpack_from(sent[1]))
    assert seen.egress_port == sent[0]
    return seen, sent[1][SEEN.size :]


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    bench = make_bench("copies")
    bench.state.clone_sessions[0] = CloneSession((Replica(10),))
    bench.state.clone_sessions[1] = CloneSession((Replica(11),))
    bench.state.clone_sessions[5] = CloneSession((Replica(15, 1), Replica(16, 2), Replica(15, 3)), class_of_service=6)
    bench.state.clone_sessions[6] = CloneSession((Replica(17),), packet_length_bytes=10)
    bench.state.clone_sessions[7] = CloneSession((Replica(17),), packet_length_bytes=2)
    bench.state.clone_sessions[8] = CloneSession((Replica(17),), packet_length_bytes=1000)
    bench.state.multicast_groups[3] = (Replica(20, 7), Replica(21, 8))
    return bench


def test_unicast(bench: Bench) -> None:
    sent = bench.send(9, order(0, 0, 0x42), depth=3, waited_us=25)
    seen, rest = read(sent[0])
    assert seen == Seen(NORMAL, 2, 0, 0x42, 0x77, 9, 33, 3, 25, 25)
    assert rest == order(0, 0, 0x42)


def test_ingress_clone_comes_first_and_keeps_its_field_list_only(bench: Bench) -> None:
    sent = bench.send(9, order(1, 7, 1))
    (clone, clone_rest), (original, original_rest) = (read(item) for item in sent)
    assert clone == Seen(INGRESS_CLONE, 11, 0, 1, 0, 0, 33, 0, 0, clone.passage_us)
    assert clone_rest == order(1, 7, 1), "what ingress changed is not in the clone"
    assert original == Seen(NORMAL, 2, 0, 1, 0x77, 9, 33, 0, 0, 0)
    assert original_rest == order(1, 0, 1)


def test_session_zero_is_a_session(bench: Bench) -> None:
    assert [port for port, _ in bench.send(9, order(1, 0, 0))] == [10, 2]


def test_clone_to_several_replicas_with_class_of_service(bench: Bench) -> None:
    sent = bench.send(9, order(1, 0, 5))
    assert [(read(item)[0].egress_port, read(item)[0].replica) for item in sent] == [(15, 1), (16, 2), (15, 3), (2, 0)]
    assert [placement.priority for placement in bench.placed] == [6, 6, 6, 0]


def test_dropped_packet_is_cloned_all_the_same(bench: Bench) -> None:
    assert [port for port, _ in bench.send(9, order(7, 0, 0))] == [11]
    assert bench.pipeline.drops == {"ingress_drop": 1}


def test_unknown_session_loses_the_clone_under_a_name(bench: Bench) -> None:
    assert [port for port, _ in bench.send(9, order(1, 0, 99))] == [2]
    assert bench.pipeline.drops == {"clone_session_unknown": 1}


@pytest.mark.parametrize(("session", "length"), [(6, 10), (8, 33)])
def test_clone_is_cut_to_the_length_of_its_session(bench: Bench, session: int, length: int) -> None:
    clone, rest = read(bench.send(9, order(1, 0, session))[0])
    assert rest == order(1, 0, session)[:length]
    assert clone.packet_length == length
    assert bench.placed[0].length_bytes == length


def test_clone_shorter_than_its_headers_is_cut_when_it_leaves(bench: Bench) -> None:
    assert len(bench.send(9, order(1, 0, 7))[0][1]) == 2


def test_egress_clone_has_the_headers_as_egress_left_them(bench: Bench) -> None:
    sent = bench.send(9, order(0, 1, 1))
    (original, _), (clone, rest) = (read(item) for item in sent)
    assert original.instance_type == NORMAL
    assert clone == Seen(EGRESS_CLONE, 11, 0, 1, 0, 0, 33 + SEEN.size, 0, 0, clone.passage_us)
    assert rest == order(0, 1, 1), "the seen header was valid already: it is written once"


def test_egress_clone_is_cut(bench: Bench) -> None:
    [_, clone] = bench.send(9, order(0, 1, 6))
    assert len(clone[1]) == 10


def test_multicast(bench: Bench) -> None:
    sent = bench.send(9, order(3, 0, 3))
    seen = [read(item)[0] for item in sent]
    assert [(item.instance_type, item.egress_port, item.replica, item.ingress_port) for item in seen] == [
        (REPLICA, 20, 7, 9),
        (REPLICA, 21, 8, 9),
    ]


def test_multicast_to_nobody_is_a_named_drop(bench: Bench) -> None:
    assert bench.send(9, order(3, 0, 4)) == []
    assert bench.pipeline.drops == {"multicast_group_empty": 1}


def test_resubmitted_packet_is_parsed_again_with_its_field_list(bench: Bench) -> None:
    [(seen, rest)] = [read(item) for item in bench.send(9, order(2, 0, 0x33))]
    assert seen == Seen(NORMAL, 3, 0, 0x33, 0, 0, 33, 0, 0, seen.passage_us)
    assert rest == order(2, 0, 0x33)


def test_endless_resubmission_is_a_named_drop(bench: Bench) -> None:
    assert bench.send(9, order(2, 0, 0xFF)) == []
    assert bench.pipeline.drops == {"resubmit_limit": 1}
    assert MAX_RESUBMITS == 16


def test_recirculated_packet_comes_back_with_what_egress_added(bench: Bench) -> None:
    [(seen, rest)] = [read(item) for item in bench.send(9, order(0, 2, 0x21))]
    assert seen == Seen(NORMAL, 4, 0, 0x21, 0, 0, 33 + SEEN.size, 0, 0, seen.passage_us)
    assert rest == order(0, 2, 0x21)


def test_drops_in_ingress_and_egress(bench: Bench) -> None:
    assert bench.send(9, order(4, 0, 0)) == bench.send(9, order(0, 3, 0)) == []
    assert bench.pipeline.drops == {"ingress_drop": 1, "egress_drop": 1}


def test_truncation_counts_the_headers_of_egress(bench: Bench) -> None:
    assert len(bench.send(9, order(5, 0, 21))[0][1]) == 21
    assert len(bench.send(9, order(0, 4, 0))[0][1]) == 20
    assert len(bench.send(9, order(5, 0, 200))[0][1]) == 33 + SEEN.size


def test_recirculated_packet_is_whole_again_after_truncation(bench: Bench) -> None:
    [(_, rest)] = [read(item) for item in bench.send(9, order(5, 2, 9))]
    assert rest == order(5, 2, 9)


@pytest.mark.parametrize("priority", range(8))
def test_priority(bench: Bench, priority: int) -> None:
    bench.send(9, order(6, 0, priority))
    assert [placement.priority for placement in bench.placed] == [priority]


def test_failed_assert_ends_the_packet_and_is_counted(bench: Bench) -> None:
    assert bench.send(9, order(8, 0, 1)) == []
    assert bench.pipeline.drops == {"assert_failed": 1}
    assert len(bench.send(9, order(8, 0, 0))) == 1
