"""The checker of histories: it agrees with brute force, and detects changes to a correct history."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.adversary.histories import linearizability
from tests.adversary.histories.linearizability import Operation, UndecidedError, violations
from tests.adversary.histories.register import Action, Observed, Outcome, Registers, Verb, Version, resolved

MODEL = Registers()
History = list[Operation[Action]]


def answered(state: Version, verb: Verb, value: str, expected: int | None, revision: int) -> Action:
    """Return a request as a register in a state answers it."""
    stale = state.value is not None and expected is not None and state.revision != expected
    if verb is Verb.CREATE:
        outcome = Outcome.DONE if state.value is None else Outcome.STALE
        return Action("x", verb, outcome, value, revision if outcome is Outcome.DONE else None)
    if state.value is None:
        return Action("x", verb, Outcome.ABSENT, None if verb is Verb.DELETE else value, expected=expected)
    if verb is Verb.GET:
        return Action("x", verb, Outcome.DONE, state.value, state.revision)
    outcome = Outcome.STALE if stale else Outcome.DONE
    written = value if verb is Verb.PUT else None
    return Action("x", verb, outcome, written, revision if outcome is Outcome.DONE else None, expected)


@st.composite
def sequential(draw: st.DrawFn, most: int = 12) -> list[Action]:
    """Draw what one client would have done, with right answers."""
    state, actions = MODEL.initial, []
    for number in range(draw(st.integers(1, most))):
        verb = draw(st.sampled_from(Verb))
        expected = None
        if verb in (Verb.PUT, Verb.DELETE):
            expected = draw(st.sampled_from((None, state.revision, 0)))
        action = answered(state, verb, f"v{number}", expected, number + 1)
        actions.append(action)
        state = MODEL.after(state, action)
    return actions


@st.composite
def overlapping(draw: st.DrawFn, most: int = 12) -> History:
    """Draw a history that is right: operations take effect one after the other, and last longer than that.

    Some of the answers are lost.
    """
    history: History = []
    for number, action in enumerate(draw(sequential(most))):
        moment = 10 * number
        called, returned = moment - draw(st.integers(0, 35)), moment + draw(st.integers(0, 35))
        if action.verb is not Verb.GET and draw(st.integers(0, 4)) == 0:
            lost = replace(action, outcome=Outcome.LOST, revision=draw(st.sampled_from((None, action.revision))))
            history.append(Operation("c", lost, called, None))
        else:
            history.append(Operation("c", action, called, returned))
    return draw(st.permutations(history))


def is_explained_by_brute_force(history: History) -> bool:
    """Try each order of each choice of operations without an answer."""
    answered_ones = [operation for operation in history if operation.returned is not None]
    lost = [operation for operation in history if operation.returned is None]
    for count in range(len(lost) + 1):
        for some in itertools.combinations(lost, count):
            for order in itertools.permutations([*answered_ones, *some]):
                if _is_in_time(order) and _is_right(order):
                    return True
    return False


def _is_in_time(order: tuple[Operation[Action], ...]) -> bool:
    return not any(
        later.returned is not None and later.returned < earlier.called
        for earlier, later in itertools.combinations(order, 2)
    )


def _is_right(order: tuple[Operation[Action], ...]) -> bool:
    state = MODEL.initial
    for operation in order:
        if not MODEL.is_possible(state, operation.action):
            return False
        state = MODEL.after(state, operation.action)
    return True


@given(overlapping(60))
def test_right_histories_are_accepted(history: History) -> None:
    assert violations(history, MODEL) == []


@given(overlapping(5), st.data())
def test_checker_agrees_with_brute_force(history: History, data: st.DataObject) -> None:
    changed = list(history)
    for _ in range(data.draw(st.integers(0, 2))):
        index = data.draw(st.integers(0, len(changed) - 1))
        operation = changed[index]
        action = operation.action
        changes = (
            replace(action, outcome=data.draw(st.sampled_from((Outcome.DONE, Outcome.ABSENT, Outcome.STALE)))),
            replace(action, revision=data.draw(st.integers(0, 6))),
            replace(action, value=f"v{data.draw(st.integers(0, 5))}"),
        )
        action = data.draw(st.sampled_from(changes))
        if operation.returned is None:
            action = replace(action, outcome=Outcome.LOST)
        changed[index] = replace(operation, action=action)
    assert (violations(changed, MODEL) == []) == is_explained_by_brute_force(changed)


@given(overlapping(30), st.data())
def test_a_changed_read_is_rejected(history: History, data: st.DataObject) -> None:
    reads = [
        operation
        for operation in history
        if operation.action.verb is Verb.GET and operation.action.outcome is Outcome.DONE
    ]
    assume(reads)
    read = data.draw(st.sampled_from(reads))
    wrong = replace(read, action=replace(read.action, value="nobody's"))
    [violation] = violations([wrong if operation is read else operation for operation in history], MODEL)
    assert "x: no order explains it" in str(violation)


def register_of(*values: str) -> History:
    """Return a history of writes one after the other, of revisions 1, 2, ..."""
    actions = [
        Action("x", Verb.PUT if number else Verb.CREATE, Outcome.DONE, value, number + 1)
        for number, value in enumerate(values)
    ]
    return [Operation("w", action, 10 * number, 10 * number + 5) for number, action in enumerate(actions)]


def read(value: str, revision: int, called: int, returned: int) -> Operation[Action]:
    return Operation("r", Action("x", Verb.GET, Outcome.DONE, value, revision), called, returned)


def test_a_stale_read_is_rejected() -> None:
    history = register_of("a", "b")
    assert violations([*history, read("a", 1, 12, 40)], MODEL) == []
    [violation] = violations([*history, read("a", 1, 16, 40)], MODEL)
    assert str(violation).endswith("none fits of: get x a: done at revision 1 (r, 0.000000 to 0.000000)")


@given(st.integers(2, 40), st.data())
def test_a_lost_write_is_rejected(count: int, data: st.DataObject) -> None:
    history = register_of(*(f"v{number}" for number in range(count)))
    lost = data.draw(st.integers(1, count - 1))
    later = read(f"v{lost - 1}", lost, 10 * lost + 6, 10 * lost + 8)
    assert [violation.subject for violation in violations([*history, later], MODEL)] == ["x"]


def test_reads_that_go_back_are_rejected() -> None:
    """Two reads during a write may see before and after, and not after and before."""
    created, put = register_of("a", "b")
    put = replace(put, returned=100)
    assert violations([created, put, read("a", 1, 20, 30), read("b", 2, 40, 50)], MODEL) == []
    assert len(violations([created, put, read("b", 2, 20, 30), read("a", 1, 40, 50)], MODEL)) == 1


def test_two_swaps_of_one_revision_are_rejected() -> None:
    [created] = register_of("a")
    swaps = [
        Operation(name, Action("x", Verb.PUT, Outcome.DONE, name, number, expected=1), 10, 20)
        for number, name in enumerate(("b", "c"), start=2)
    ]
    assert len(violations([created, *swaps], MODEL)) == 1


def test_an_unanswered_write_may_come_late_or_never() -> None:
    [created] = register_of("a")
    lost = Operation("w", Action("x", Verb.PUT, Outcome.LOST, "b"), 10, None)
    assert violations([created, lost, read("a", 1, 20, 30), read("b", 2, 40, 50)], MODEL) == []
    assert violations([created, lost, read("a", 1, 40, 50)], MODEL) == []
    before = read("b", 2, 6, 8)
    assert len(violations([created, lost, before], MODEL)) == 1


def test_a_seen_value_ends_its_unanswered_write() -> None:
    [created] = register_of("a")
    lost = Operation("w", Action("x", Verb.PUT, Outcome.LOST, "b"), 10, None)
    late = read("a", 1, 50, 60)
    assert violations([created, lost, late], MODEL) == []
    observed = Observed({("x", "b"): (2, 40)}, {}, is_complete=False)
    assert len(violations(resolved([created, lost, late], observed), MODEL)) == 1


def test_a_seen_deletion_is_one_of_those_without_answer() -> None:
    [created] = register_of("a")
    deletions = [Operation("w", Action("x", Verb.DELETE, Outcome.LOST), called, None) for called in (30, 10)]
    observed = Observed({}, {("x", 2): 40}, is_complete=True)
    history = resolved([created, *deletions], observed)
    assert [(operation.called, operation.returned) for operation in history[1:]] == [(10, 40)]
    assert violations([*history, read("a", 1, 20, 30)], MODEL) == []
    assert len(violations([*history, read("a", 1, 41, 50)], MODEL)) == 1


def test_what_a_complete_watch_has_not_told_is_left_out() -> None:
    [created] = register_of("a")
    lost = Operation("w", Action("x", Verb.PUT, Outcome.LOST, "b"), 10, None)
    assert resolved([created, lost], Observed({}, {}, is_complete=True)) == [created]
    assert resolved([created, lost], Observed({}, {}, is_complete=False)) == [created, lost]


def test_each_object_is_checked_by_itself() -> None:
    history = register_of("a")
    other = [replace(operation, action=replace(operation.action, name="y")) for operation in history]
    absent = Operation("r", Action("y", Verb.GET, Outcome.ABSENT), 6, 8)
    assert [violation.subject for violation in violations([*history, *other, absent], MODEL)] == ["y"]


def test_thousands_of_operations_are_checked() -> None:
    """Eight concurrent clients, one object; the last operation is wrong."""
    history = register_of(*(f"v{number}" for number in range(2000)))
    wide = [
        replace(operation, called=operation.called - 35, returned=(operation.returned or 0) + 35)
        for operation in history
    ]
    assert violations(wide, MODEL) == []
    assert len(violations([*wide[:200], read("v1", 2, 60_000, 60_001)], MODEL)) == 1


def test_a_search_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "MOST_STEPS", 10)
    with pytest.raises(UndecidedError, match=r"^x: undecided after 10 steps$"):
        violations(register_of(*map(str, range(20))), MODEL)
