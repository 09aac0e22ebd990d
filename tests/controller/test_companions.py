"""Whoever looks after something in switches beside the daemon: called, let go, and not written over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.daemon import SwitchSession
from controller.errors import SessionError
from controller.tables.entities import key_of
from dataplane.fabric.families import leaf_spine
from tests.controller.aggregation.switches import Lab, running

TOPOLOGY = leaf_spine(1, 2, 1)


@dataclass
class Visitor:
    """A companion that gives up at one switch, and notes where it is."""

    events: list[str] = field(default_factory=list)

    async def serve(self, switch: str, session: SwitchSession) -> None:
        self.events.append(f"{switch} came")
        if switch == "spine1":
            raise SessionError(switch, "read", "counters are not to be had")
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append(f"{switch} went")


def test_companions_look_after_a_switch_as_long_as_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        lab, visitor = Lab(TOPOLOGY), Visitor()
        async with running(lab, (visitor,)) as run:
            await run.until(lambda: len(visitor.events) == 3)
            assert sorted(visitor.events) == ["leaf1 came", "leaf2 came", "spine1 came"]
            assert "switch spine1: read: counters are not to be had" in caplog.text
            lab.stop("leaf2")
            await run.until(lambda: "leaf2 went" in visitor.events)
            lab.down.clear()
            await run.until(lambda: visitor.events.count("leaf2 came") == 2)
            assert run.daemon.coordinator.live == {"leaf1", "leaf2", "spine1"}
        assert sorted(visitor.events[5:]) == ["leaf1 went", "leaf2 went"]

    asyncio.run(scene())


def test_what_companions_write_is_left_alone() -> None:
    async def scene() -> None:
        lab = Lab(TOPOLOGY)
        match = P4TableMatch(name=7, segment=0)
        kept = P4TableEntry("store_names", match=match, action=P4TableAction("cached", cell=1, generation=1))
        lost = P4TableEntry("aggregation_reports", match=P4TableMatch(job=9), action=P4TableAction("report_items"))
        for entity in (kept, lost):
            lab.switches["leaf1"].tables[key_of(entity)] = entity
        async with running(lab) as run:
            await run.until(lambda: key_of(lost) not in lab.switches["leaf1"].tables)
            assert key_of(kept) in lab.switches["leaf1"].tables
            assert key_of(kept) not in run.daemon.coordinator.held("leaf1")

    asyncio.run(scene())
