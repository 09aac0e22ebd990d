"""Flows leave dead links together and return once these have been alive for a while."""

from __future__ import annotations

import pytest

from collectors.values import LinkCondition, LinkStatus
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.backups import Backups
from controller.network.paths.deciding.decide import Assignment, Decision
from controller.network.paths.deciding.evacuation import Avoided, Evacuation, ReportedLinks
from controller.network.paths.deciding.graph import Network
from dataplane.topology.values import LinkKey, Topology

S = 1_000_000_000
HOLD_NS = 5 * S
AD = FlowSpec("ha", "hd")
ABD, ACD, ACBD = ("a", "b", "d"), ("a", "c", "d"), ("a", "c", "b", "d")
BD, CD = LinkKey("b", "d"), LinkKey("c", "d")
DOWN, UP = LinkStatus(LinkCondition.DOWN, 0, "b no longer hears d"), LinkStatus(LinkCondition.UP, 0)


class Flow:
    """One flow under evacuation, initially on its base path."""

    def __init__(self, topology: Topology) -> None:
        self.told = ReportedLinks()
        self.evacuation = Evacuation(Backups(Network(topology).table), self.told, return_after_ns=HOLD_NS)
        self.path: tuple[str, ...] = ABD
        self.explicit: set[FlowSpec] = set()

    def round(self, dead: set[LinkKey], now_ns: int) -> list[Decision]:
        """Let the flow leave and return as the path server does; return the decisions."""
        avoided, current = Avoided(frozenset(dead)), {AD: Assignment(self.path)}
        decisions = self.evacuation.leave(current, self.explicit, avoided, lambda *_: [], now_ns)
        self._follow(decisions)
        for decision, is_explicit in self.evacuation.come_back({AD: Assignment(self.path)}, now_ns):
            self._follow([decision])
            self.explicit = self.explicit if is_explicit else set()
            decisions.append(decision)
        return decisions

    def _follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            assert decision.old_path == self.path
            self.path, self.explicit = decision.new_path, {AD}


@pytest.fixture
def flow(diamond: Topology) -> Flow:
    return Flow(diamond)


def test_evacuated_flow_returns_after_the_hold_time(flow: Flow) -> None:
    [away] = flow.round({BD}, 1 * S)
    assert (away.new_path, away.dead_link) == (ACD, BD)
    assert flow.round({BD}, 9 * S) == []
    assert flow.round(set(), 10 * S) == []
    assert flow.round(set(), 10 * S + HOLD_NS - 1) == []
    [back] = flow.round(set(), 10 * S + HOLD_NS)
    assert (back.new_path, back.dead_link) == (ABD, None)
    assert back.reason == "link b->d is in use again: from a-c-d back to a-b-d"
    assert flow.explicit == set()  # it follows the base routes as before
    assert not flow.evacuation.is_waiting


def test_hold_time_restarts_with_each_death(flow: Flow) -> None:
    flow.round({BD}, 1 * S)
    for second in (2, 4, 6):
        assert flow.round(set(), second * S) == []
        assert flow.round({BD}, (second + 1) * S) == []
    assert flow.round(set(), 8 * S) == []
    assert flow.round(set(), 12 * S) == []
    assert len(flow.round(set(), 13 * S)) == 1


def test_flow_returns_at_once_if_the_controller_held_the_link(flow: Flow) -> None:
    assert flow.told.watch({BD: DOWN}, {BD, CD})
    [away] = flow.round({BD}, 1 * S)
    assert away.reason == "link b->d (b no longer hears d) of a-b-d is dead; a-c-d is its backup"
    assert not flow.told.watch({BD: UP}, {BD, CD})
    assert len(flow.round(set(), 2 * S)) == 1


def test_flow_with_a_dead_backup_returns_to_its_first_path(flow: Flow) -> None:
    flow.round({LinkKey("a", "b")}, 1 * S)
    [again] = flow.round({LinkKey("a", "b"), CD}, 2 * S)
    assert again.new_path == ACBD
    assert flow.round({CD}, 3 * S) == []
    [back] = flow.round({CD}, 3 * S + HOLD_NS)
    assert (back.old_path, back.new_path) == (ACBD, ABD)


def test_a_flow_that_was_moved_meanwhile_stays(flow: Flow) -> None:
    flow.round({BD}, 1 * S)
    flow.path = ACBD
    assert flow.round(set(), 20 * S) == []
    assert not flow.evacuation.is_waiting


def test_without_another_path_nothing_is_decided(flow: Flow) -> None:
    assert flow.round({BD, CD}, 1 * S) == []
    assert not flow.evacuation.is_waiting


def test_an_explicit_path_stays_explicit(flow: Flow) -> None:
    flow.explicit = {AD}
    flow.round({BD}, 1 * S)
    flow.round(set(), 2 * S)
    assert len(flow.round(set(), 2 * S + HOLD_NS)) == 1
    assert flow.explicit == {AD}


def test_saved_decisions_restore_the_flows_that_wait_to_return(flow: Flow, diamond: Topology) -> None:
    [away] = flow.round({BD}, 1 * S)
    anew = Flow(diamond)
    anew.path = ACD
    anew.evacuation.restore([away])
    assert len(anew.round(set(), 2 * S)) == 1
    anew.evacuation.restore([Decision(3 * S, AD, ACD, ABD, (), "better"), away])
    assert not anew.evacuation.is_waiting


def test_unknown_links_are_not_reported(flow: Flow) -> None:
    assert not flow.told.watch({LinkKey("x", "y"): DOWN}, {BD, CD})
    assert flow.told.down == set()
