"""Digests: bundled, held back until acknowledged, sent to the primary (sections 9.8 and 15.3)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4d, p4i, p4r, p4t
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ProgramError
from dataplane.switch.p4runtime import Code
from dataplane.switch.p4runtime import digests as digests_module
from dataplane.switch.p4runtime.digests import DigestConfig, LearnedList, Learner
from dataplane.switch.p4runtime.p4data import ANY_WIDTH, DataLayout
from dataplane.switch.p4runtime.strings import StringMaps
from dataplane.switch.pipeline import DigestMessage

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
A, B, C = (1,), (2,), (3,)


def learner(max_timeout_ns: int = 100, max_list_size: int = 0, ack_timeout_ns: int = 1_000) -> Learner:
    made = Learner()
    made.configure(DigestConfig(max_timeout_ns, max_list_size, ack_timeout_ns))
    return made


def test_digest_list_is_sent_once_its_first_message_times_out() -> None:
    made = learner()
    assert made.next_due_ns() is None
    assert made.learn([A, B, A], 10) == []
    assert made.learn([C, B], 50) == []
    assert made.next_due_ns() == 110
    assert made.tick(109) == []
    assert made.tick(110) == [LearnedList(1, (A, B, C))]
    assert made.next_due_ns() is None
    assert made.tick(500) == []


def test_a_list_goes_when_it_is_full_of_different_messages() -> None:
    made = learner(max_list_size=2)
    assert made.learn([A, A, B, C], 10) == [LearnedList(1, (A, B))]
    assert made.tick(110) == [LearnedList(2, (C,))]


@pytest.mark.parametrize(("timeout_ns", "size"), [(0, 0), (0, 5), (100, 1)])
def test_without_waiting_each_message_is_a_list(timeout_ns: int, size: int) -> None:
    made = learner(timeout_ns, size)
    assert made.learn([A, B, A], 0) == [LearnedList(1, (A,)), LearnedList(2, (B,))]


def test_duplicates_wait_for_the_acknowledgement_or_its_timeout() -> None:
    made = learner(0)
    made.learn([A, B], 0)
    assert made.learn([A, B], 999) == []
    assert made.acknowledge(1)
    assert made.learn([A, B], 999) == [LearnedList(3, (A,))]
    assert made.learn([B], 1_000) == [LearnedList(4, (B,))]
    assert not made.acknowledge(5)
    assert not made.acknowledge(0)
    assert made.acknowledge(1)  # late or twice: no harm


def test_without_an_acknowledgement_timeout_nothing_is_held_back() -> None:
    made = learner(0, ack_timeout_ns=0)
    assert made.learn([A, A], 0) == [LearnedList(1, (A,)), LearnedList(2, (A,))]


def test_a_limit_that_is_not_given_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests_module, "MAX_LIST_MESSAGES", 3)
    made = learner()
    assert [len(item.messages) for item in made.learn([(value,) for value in range(7)], 0)] == [3, 3]


def test_what_is_held_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests_module, "MAX_UNACKNOWLEDGED", 3)
    made = learner(0)
    made.learn([(value,) for value in range(5)], 0)
    assert made.learn([(0,), (1,), (2,), (3,), (4,)], 1)[0].messages == ((0,),)


def test_values_that_are_one_to_pythons_hash_lie_apart_in_memory() -> None:
    made = learner(0)
    messages = [(7 + number * sys.hash_info.modulus,) for number in range(200)]
    assert len({hash(message) for message in messages}) == 1
    assert len(made.learn(messages, 0)) == 200
    assert len({hash(key) for key in made._held_back}) == len(made._held_back) == 200


def test_turned_off_it_learns_nothing_and_forgets() -> None:
    made = learner()
    made.learn([A], 0)
    made.configure(None)
    assert made.learn([B], 0) == []
    assert made.tick(1_000) == []
    assert made.next_due_ns() is None
    made.configure(DigestConfig())
    assert made.learn([A], 0) == [LearnedList(1, (A,))]


@given(
    st.integers(0, 50),
    st.integers(0, 4),
    st.integers(0, 80),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=40),
)
def test_digest_is_neither_repeated_in_its_timeout_nor_late(
    timeout_ns: int, size: int, ack_ns: int, arrivals: list[tuple[int, int]]
) -> None:
    made, now, told, waiting = learner(timeout_ns, size, ack_ns), 0, {}, {}  # type: ignore[var-annotated]

    def tell(lists: list[LearnedList]) -> None:
        for item in lists:
            assert 0 < len(item.messages) <= (size or 4_096)
            for message in item.messages:
                assert message not in told or now - told[message] >= ack_ns
                told[message] = now
                waiting.pop(message, None)

    for value, gap in arrivals:
        for _ in range(gap):
            now += 1
            tell(made.tick(now))
        if (value,) not in told or now - told[(value,)] >= ack_ns:
            waiting.setdefault((value,), now)
        tell(made.learn([(value,)], now))
        assert all(now - since <= timeout_ns for since in waiting.values())


def entry(shell: Shell, *config: int) -> p4r.Entity:
    message = p4r.DigestEntry(digest_id=shell.id("digests", "learned_t"))
    if config:
        message.config.max_timeout_ns, message.config.max_list_size, message.config.ack_timeout_ns = config
    return p4r.Entity(digest_entry=message)


def received_lists(shell: Shell) -> list[p4r.DigestList]:
    lists = [message.digest for message in shell.received if message.WhichOneof("update") == "digest"]
    shell.received.clear()
    return lists


def learned(address: int, port: int) -> p4d.P4Data:
    data = p4d.P4Data()
    for value in (address, port):
        data.struct.members.add(bitstring=value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))
    return data


def message(address: int, port: int = 1) -> DigestMessage:
    return DigestMessage("learned_t", (address, port))


def test_entries_turn_learning_on_and_off(shell: Shell) -> None:
    every = p4r.Entity(digest_entry=p4r.DigestEntry())
    assert shell.read(every) == []
    shell.insert(entry(shell, 5, 6, 7))
    assert shell.read(every) == shell.read(entry(shell)) == [entry(shell, 5, 6, 7)]
    shell.modify(entry(shell, 1, 0, 0))
    assert shell.read(every) == [entry(shell, 1, 0, 0)]
    for kind, entity, code in (
        (INSERT, entry(shell, 1, 1, 1), Code.ALREADY_EXISTS),
        (MODIFY, entry(shell, -1, 0, 0), Code.INVALID_ARGUMENT),
        (MODIFY, p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=9)), Code.NOT_FOUND),
    ):
        assert shell.refusal(kind, entity) is code
    shell.delete(entry(shell))
    assert shell.read(every) == []
    for kind in (MODIFY, DELETE):
        assert shell.refusal(kind, entry(shell, 1, 1, 1)) is Code.NOT_FOUND
    assert shell.read_refusal(p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=9))) is Code.NOT_FOUND


def test_lists_reach_the_primary_and_are_acknowledged(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(entry(shell, 100, 0, 1_000))
    backup: list[p4r.StreamMessageResponse] = []
    shell.connect(0, backup)
    wakes: list[int] = []
    shell.core.on_due(lambda: wakes.append(switch.time_ns))
    switch.time_ns = 7
    switch.digests(message(0xAA00, 3), message(0xBB00), message(0xAA00, 3))
    assert wakes == [7]
    assert shell.core.tick(106) == 107
    assert received_lists(shell) == []
    switch.time_ns = 107
    assert shell.core.tick(107) is None
    (digest,) = received_lists(shell)
    assert digest == p4r.DigestList(
        digest_id=shell.id("digests", "learned_t"),
        list_id=1,
        data=[learned(0xAA00, 3), learned(0xBB00, 1)],
        timestamp=107,
    )
    switch.digests(message(0xBB00), message(0xCC00))
    shell.core.tick(300)
    assert [item.data for item in received_lists(shell)] == [[learned(0xCC00, 1)]]
    ack = p4r.DigestListAck(digest_id=digest.digest_id, list_id=1)
    shell.session.handle(p4r.StreamMessageRequest(digest_ack=ack))
    switch.digests(message(0xBB00))
    shell.core.tick(500)
    assert [item.list_id for item in received_lists(shell)] == [3]
    assert all(item.WhichOneof("update") == "arbitration" for item in backup)


def test_new_primary_resets_acknowledged_digests(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(entry(shell, 0, 0, 10**9))
    switch.digests(message(1))
    assert len(received_lists(shell)) == 1
    mail: list[p4r.StreamMessageResponse] = []
    shell.connect(5, mail)
    switch.digests(message(1))
    assert [item.WhichOneof("update") for item in mail] == ["arbitration", "digest"]


def test_refused_acknowledgements(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(entry(shell, 0, 0, 10))
    switch.digests(message(1))
    received_lists(shell)
    digest_id = shell.id("digests", "learned_t")
    backup: list[p4r.StreamMessageResponse] = []
    standby = shell.connect(0, backup)
    backup.clear()
    for session, mail, ack, code in (
        (shell.session, shell.received, p4r.DigestListAck(digest_id=3, list_id=1), Code.INVALID_ARGUMENT),
        (shell.session, shell.received, p4r.DigestListAck(digest_id=digest_id, list_id=2), Code.NOT_FOUND),
        (standby, backup, p4r.DigestListAck(digest_id=digest_id, list_id=1), Code.PERMISSION_DENIED),
    ):
        mail.clear()
        session.handle(p4r.StreamMessageRequest(digest_ack=ack))
        (answer,) = mail
        assert Code(answer.error.canonical_code) is code
        assert answer.error.space
        assert answer.error.digest_list_ack.digest_list_ack == ack


def test_lost_digests_are_counted(shell: Shell, switch: FakeSwitch) -> None:
    switch.digests(message(1), message(2))
    assert shell.core.drops["digest_not_configured"] == 2
    shell.insert(entry(shell, 0, 0, 0))
    shell.session.close()
    switch.digests(message(1))
    assert shell.core.drops["digest_no_primary"] == 1
    assert received_lists(shell) == []


TYPES = """
structs { key: "outer_t" value {
  members { name: "on" type_spec { bool {} } }
  members { name: "pair" type_spec { tuple {
    members { bitstring { bit { bitwidth: 9 } } } members { bitstring { int { bitwidth: 8 } } } } } }
  members { name: "kind" type_spec { serializable_enum { name: "kind_t" } } }
  members { name: "port" type_spec { new_type { name: "port_t" } } }
  members { name: "mine" type_spec { new_type { name: "mine_t" } } } } }
serializable_enums { key: "kind_t" value { underlying_type { bitwidth: 16 } } }
new_types { key: "port_t" value { translated_type { uri: "u" sdn_bitwidth: 32 } } }
new_types { key: "mine_t" value { original_type { bitstring { bit { bitwidth: 4 } } } } }
"""


def layout(spec: str) -> DataLayout:
    info = p4i.P4Info(type_info=text_format.Parse(TYPES, p4t.P4TypeInfo()))
    return DataLayout(text_format.Parse(spec, p4t.P4DataTypeSpec()), info, "the_digest", StringMaps(info))


def test_nested_types_are_written_as_the_p4info_says() -> None:
    made = layout('struct { name: "outer_t" }')
    assert made.widths == [1, 9, 8, 16, ANY_WIDTH, 4]
    data = made.encode((1, 300, 0xFF, 0x0800, 5, 3))
    wanted = """struct {
      members { bool: true } members { tuple { members { bitstring: "\\001\\054" } members { bitstring: "\\377" } } }
      members { enum_value: "\\010\\000" } members { bitstring: "\\005" } members { bitstring: "\\003" } }"""
    assert data == text_format.Parse(wanted, p4d.P4Data())


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("bitstring { varbit { max_bitwidth: 8 } }", "varbit"),
        ('header { name: "h" }', "header"),
        ('enum { name: "e" }', "enum"),
        ("error {}", "error"),
        ('struct { name: "unknown_t" }', "unknown_t"),
        ("", "none"),
    ],
)
def test_types_that_cannot_be_written_are_refused_by_name(spec: str, problem: str) -> None:
    with pytest.raises(ProgramError, match=f"the_digest: .*{problem}"):
        layout(spec)
