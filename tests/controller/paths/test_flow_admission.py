"""Admission of flows to the path server when there are more than it looks after."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.intents import FlowSpec
from controller.paths.flow_admission import Admission, admit


def flow(number: int) -> FlowSpec:
    return FlowSpec(f"h{number}", "sink")


FLOWS = [flow(number) for number in range(12)]
rates = st.dictionaries(st.sampled_from(FLOWS), st.integers(0, 100))


def test_everybody_is_admitted_while_there_is_room() -> None:
    assert admit(FLOWS[:3], FLOWS[3:], {}, (), room=3) == Admission((FLOWS[0], FLOWS[1], FLOWS[2]))


def test_heaviest_newcomers_take_the_free_places() -> None:
    found = admit(FLOWS[:3], FLOWS[3:5], {FLOWS[1]: 5, FLOWS[3]: 9, FLOWS[4]: 9}, (), room=1)
    assert found == Admission((FLOWS[1],), (), 2)


def test_newcomer_replaces_the_lightest_that_sends_half_as_much() -> None:
    sent = {FLOWS[0]: 100, FLOWS[1]: 41, FLOWS[5]: 40, FLOWS[6]: 20, FLOWS[7]: 30}
    found = admit(FLOWS[:2], FLOWS[5:8], sent, (), room=0)
    assert found == Admission((FLOWS[0],), (FLOWS[6],), 1)


def test_held_flows_never_make_room() -> None:
    sent = {FLOWS[0]: 100, FLOWS[5]: 1, FLOWS[6]: 2}
    found = admit(FLOWS[:1], FLOWS[5:7], sent, {FLOWS[5]}, room=0)
    assert found == Admission((FLOWS[0],), (FLOWS[6],))
    assert admit(FLOWS[:1], FLOWS[5:7], sent, FLOWS[5:7], room=0) == Admission((), (), 1)


@given(st.integers(0, 12), st.integers(0, 4), rates, st.sets(st.sampled_from(FLOWS)))
def test_number_of_flows_never_exceeds_the_places(
    split: int, room: int, sent: dict[FlowSpec, int], held: set[FlowSpec]
) -> None:
    newcomers, known = FLOWS[:split], FLOWS[split:]
    found = admit(newcomers, known, sent, held, room=room)
    assert len(found.admitted) <= room + len(found.removed)
    assert set(found.admitted) <= set(newcomers)
    assert set(found.removed) <= set(known) - held
    assert len(found.admitted) + found.refused == len(newcomers)
    assert len(set(found.removed)) == len(found.removed)
    for removed in found.removed:
        assert max(sent.get(flow, 0) for flow in found.admitted) > 2 * sent.get(removed, 0)
