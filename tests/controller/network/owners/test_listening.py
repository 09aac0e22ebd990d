"""Owners that decide by switches' counters and digests, and switches that lack them or refuse the writes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.network.content.settings import RecordedSettings, StoreSettings
from controller.network.features import Features
from controller.network.intents import RouteSet
from controller.network.owners.base import ListeningOwner
from controller.network.p4runtime.session import FABRIC_AGGREGATION, Bundling, Learned, fabric_program, load_schema
from controller.network.tables.entities import Entities, EntityKey
from controller.network.tables.store import NAMES, PACKETS
from dataplane.topology.values import Topology
from tests.controller.network.test_daemon import Lab, play, running

KEPT = RecordedSettings(name="/kept", bytes=10, writers=("ha",), server="hd")


class Visitor(ListeningOwner):
    """Owns nothing; records which switches count."""

    name = "visitor"
    interval_ns = 1_000_000
    digests: Mapping[str, Bundling] = {}

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.problems: dict[str, str] = {}

    def owns(self, key: EntityKey) -> bool:
        return False

    def wanted(self, switch: str) -> Entities:
        return {}

    def counter(self, switch: str) -> str | None:
        return PACKETS

    def counted(self, switch: str, packets: Mapping[EntityKey, int], now_ns: int) -> None:
        self.counts[switch] = self.counts.get(switch, 0) + 1

    def learned(self, switch: str, learned: Learned, now_ns: int) -> None:
        raise AssertionError("no digests")

    def unheard(self, switch: str, problem: str) -> None:
        self.problems[switch] = problem


@pytest.fixture
def lab(diamond: Topology) -> Lab:
    """Return four switches for the content program."""
    return Lab(diamond, load_schema(*fabric_program(FABRIC_AGGREGATION)))


def test_listening_follows_the_live_switches_and_retries_errors(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        visitor = Visitor()
        lab.deaf.add("b")
        async with running(lab, features=Features(lab.topology, more=(visitor,))) as run:
            await run.until(lambda: all(visitor.counts.get(name, 0) > 2 for name in "acd"))
            assert visitor.problems.keys() == {"b"}
            assert run.daemon.coordinator.live == set("abcd"), "its tables are reconciled all the same"
            assert "visitor: switch b: read: counters are not to be had" in caplog.text
            lab.deaf.clear()
            await run.until(lambda: visitor.counts.get("b", 0) > 2)
            lab.down.add("c")
            lab.unplug("c")
            await run.until(lambda: "c" not in run.daemon.coordinator.live)
            before = dict(visitor.counts)
            await run.until(lambda: visitor.counts["a"] > before["a"] + 2)
            assert visitor.counts["c"] == before["c"]
            lab.down.clear()
            await run.until(lambda: visitor.counts["c"] > before["c"] + 2)

    play(scene())


def test_switch_that_refuses_content_gets_it_once_it_accepts(lab: Lab) -> None:
    async def scene() -> None:
        features = Features(lab.topology, store=StoreSettings(recorded=(KEPT,)))
        lab.refuse.add(NAMES)
        async with running(lab, features=features) as run:
            assert run.daemon.store is not None
            store = run.daemon.store
            run.source.put_nowait(RouteSet(1, ()))
            await run.until(lambda: store.problem("d").startswith("switch d: write: RESOURCE_EXHAUSTED"))
            await run.until(lambda: run.daemon.status().settled)
            assert NAMES not in {key.table for key in lab.tables("d")}
            lab.refuse.clear()
            await run.until(lambda: store.problem("d") == "")
            assert NAMES in {key.table for key in lab.tables("d")}
            assert all(run.daemon.coordinator.is_right(name) for name in "abcd")

    play(scene())
