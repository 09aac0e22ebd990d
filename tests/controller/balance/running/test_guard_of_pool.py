"""A pool's units are released well before its lease ends, however service and loop fail; virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from controller.apiserver.resources import UnitPool
from controller.apiserver.resources.unit_pool import HolderStatus
from controller.balance.errors import LeverError
from controller.balance.levers.pool import LEASE_SHARE
from controller.balance.levers.settings import LeverSettings, PoolLever, QuotaLever
from controller.balance.running.guard import GuardOrder, Heard, watch_over
from tests.controller.balance.levers.test_pool import Unit
from tests.controller.balance.running.parts import SECOND

LEASE_S = 10.0
HOLD_S = LEASE_SHARE * LEASE_S
TURN_S = 0.5
LEAST, OWN = "1000", "50000"
FIRST_S = 100.0


class Life:
    """A loop that turns every half second until it is killed or hangs, a service that fails, and a guard's pipe."""

    def __init__(self, folder: Path, away_s: float, back_s: float, dead_s: float, *, hangs: bool) -> None:
        self.unit = Unit(folder)
        self.words: list[int] = []
        self.unit.lever.tell_answers(self.words.append)
        self._away_s, self._back_s, self._dead_s, self._hangs = away_s, back_s, dead_s, hangs
        self._turns = self._times()
        self._next_s: float | None = next(self._turns)
        self.answered_s, self.low_s = FIRST_S, list[float]()

    @property
    def now_s(self) -> float:
        return self.unit.machine.clock.now_ns() / SECOND

    def look(self) -> None:
        """Record whether the quota is at its low end now."""
        if self.unit.machine.quota() == LEAST:
            self.low_s.append(self.now_s)

    def hear(self, left_s: float | None) -> Heard:
        """Run until the guard's next check or message."""
        self.look()
        wait_s = None if self._next_s is None else self._next_s - self.now_s
        if wait_s is None or (left_s is not None and left_s < wait_s):
            assert left_s is not None, "nothing would wake the guard"
            self.unit.machine.pass_s(left_s)
            return Heard(is_closed=self._next_s is None)
        self.unit.machine.pass_s(wait_s)
        self._next_s = next(self._turns, None)
        return self._turned() if self._next_s is not None else Heard(is_closed=True)

    def _times(self) -> Iterator[float]:
        at_s = FIRST_S
        while at_s < FIRST_S + self._dead_s:
            yield at_s
            at_s += TURN_S
        yield at_s + (100 * LEASE_S if self._hangs else 0)

    def _turned(self) -> Heard:
        self.words.clear()
        past_s = self.now_s - FIRST_S
        self.unit.books.is_away = self._away_s <= past_s < self._back_s
        with suppress(LeverError):
            self.unit.tell()
            self.answered_s = self.now_s
        return Heard((*self.words, self.unit.lever.until_ns))


def guard(life: Life) -> None:
    levers = LeverSettings(
        cpu_quota=QuotaLever(group="/unit", low=1, set=True), pool=PoolLever(pool="p", holder="gpu0")
    )
    watch_over(GuardOrder(levers, HOLD_S), [life.unit.machine.units(low=1)], life, life.unit.machine.clock)
    life.look()


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize(
    ("away_s", "dead_s"),
    [(2.0, 2.0), (2.0, 4.0), (2.0, 6.5), (2.0, 6.9), (2.0, 8.0), (2.0, 11.0), (99.0, 4.0)],
)
def test_units_are_released_half_a_lease_after_the_last_answer(
    tmp_path: Path, away_s: float, dead_s: float, *, hangs: bool
) -> None:
    life = Life(tmp_path, away_s, 99.0, dead_s, hangs=hangs)
    guard(life)
    assert life.unit.machine.quota() == LEAST
    assert life.low_s[0] == pytest.approx(life.answered_s + HOLD_S)
    assert LEASE_S - (life.low_s[0] - life.answered_s) == pytest.approx((1 - LEASE_SHARE) * LEASE_S)


def test_live_loop_regains_its_units_when_the_service_returns(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, 2.0, 9.0, 12.0, hangs=False)
    guard(life)
    assert life.answered_s == pytest.approx(FIRST_S + 11.5)
    assert life.low_s[0] == pytest.approx(FIRST_S + 1.5 + HOLD_S)
    assert all(at_s < FIRST_S + 9.5 or at_s >= life.answered_s + HOLD_S for at_s in life.low_s)
    assert life.unit.machine.quota() == LEAST


def test_guard_gets_an_answer_before_levers_move(tmp_path: Path) -> None:
    unit = Unit(tmp_path)
    unit.machine.units(low=1).move(-30)
    quotas: list[str] = []
    unit.lever.tell_answers(lambda _: quotas.append(unit.machine.quota()))
    unit.tell()
    assert set(quotas) == {"20000"}
    assert unit.machine.quota() == OWN


def test_units_are_not_used_without_a_notified_guard(tmp_path: Path) -> None:
    unit = Unit(tmp_path)
    unit.machine.units(low=1).move(-30)

    def is_gone(_: int) -> None:
        raise LeverError("guard", "it has ended")

    unit.lever.tell_answers(is_gone)
    with pytest.raises(LeverError, match="it has ended"):
        unit.tell()
    assert unit.machine.quota() == "20000"


def test_answer_half_a_lease_old_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit(tmp_path)
    unit.machine.units(low=1).move(-30)
    answer = unit.books.report_units

    def slow(pool: str, status: HolderStatus) -> UnitPool:
        given = answer(pool, status)
        unit.machine.pass_s(HOLD_S)  # as if the process were stopped then
        return given

    monkeypatch.setattr(unit.books, "report_units", slow)
    unit.tell()
    assert unit.machine.quota() == "20000"
