"""Rules over all subjects at once give the same as subject by subject: events, evidence, order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from collectors.events.engine import EventEngine
from collectors.events.rules import ChangeSettings, Rule
from collectors.events.scopes import Scope
from collectors.values import FlowKey, PathState, ReporterState, Snapshot
from dataplane.topology.values import LinkKey
from tests.collectors.events.reference_rules import PlainEngine
from tests.collectors.events.states import FLOW, IDLE, MS

LINKS = [LinkKey(f"s{number}", "s9") for number in range(5)]
FLOWS = [FlowKey(FLOW.src, FLOW.dst, 17, port, 9) for port in range(4)]

limits = st.sampled_from([0.0, 0.25, 0.5, 0.75])
holds = st.sampled_from([0, 100 * MS, 250 * MS])
changes = st.builds(
    ChangeSettings,
    learn=st.integers(2, 4),
    slack=st.sampled_from([0.0, 0.25]),
    limit=st.sampled_from([1.0, 4.0]),
    least_deviation=st.sampled_from([0.0, 0.1]),
    adopt_after_ns=st.sampled_from([300 * MS, 10_000 * MS]),
)


@st.composite
def rules(draw: st.DrawFn) -> list[Rule]:
    drawn = []
    for number in range(draw(st.integers(1, 3))):
        scope, figure = draw(
            st.sampled_from(
                [
                    (Scope.LINK, "utilisation"),
                    (Scope.LINK, "loss"),
                    (Scope.PATH, "rate_bps"),
                    (Scope.REPORTER, "lost"),
                ]
            )
        )
        change = draw(st.none() | changes)
        limit, below = (None, None) if change else (draw(limits), draw(st.booleans()))
        drawn.append(
            Rule(
                name=str(number),
                figure=figure,
                scope=scope,
                change=change,
                above=None if below else limit,
                below=limit if below else None,
                hold_ns=draw(holds),
                clear_hold_ns=draw(st.none() | holds),
                match=draw(st.sampled_from([(), ("s[0-2]->*", "*:1->*", "node 2 *")])),
                per_second=draw(st.booleans()),
                least_samples=draw(st.sampled_from([0, 2])) if scope is Scope.LINK else 0,
                evidence=draw(st.integers(1, 4)),
            )
        )
    return drawn


shares = st.sampled_from([0.0, 0.0, 0.25, 0.3, 0.5, 0.75, 1.0])


@st.composite
def snapshots(draw: st.DrawFn) -> list[Snapshot]:
    """Return snapshots in which subjects come and go, also in another order, and figures are unknown at times."""
    drawn = []
    for number in range(draw(st.integers(1, 12))):
        links = draw(st.lists(st.sampled_from(LINKS), unique=True)) if draw(st.integers(0, 3)) == 0 else LINKS
        flows = draw(st.lists(st.sampled_from(FLOWS), unique=True))
        drawn.append(
            Snapshot(
                (100 * number + draw(st.integers(0, 99))) * MS,
                {
                    key: replace(
                        IDLE,
                        link=key,
                        utilisation=draw(shares),
                        loss=draw(st.none() | shares),
                        samples=draw(st.integers(0, 3)),
                    )
                    for key in links
                },
                {flow: PathState(flow, ("s1",), 1, 1, 0, draw(st.none() | st.integers(0, 2))) for flow in flows},
                {(node, 0): ReporterState(node, 0, 9, draw(st.integers(0, 9)), 0, 0, 0) for node in (1, 2)},
            )
        )
    return drawn


@given(rules(), snapshots(), st.sampled_from([1, 4, 100]))
def test_all_at_once_is_as_one_by_one(watched: list[Rule], taken: list[Snapshot], most: int) -> None:
    engine, plain = EventEngine(watched, most), PlainEngine(watched, most)
    for snapshot in taken:
        assert engine.observe(snapshot) == plain.observe(snapshot)
        assert set(engine.open_events()) == set(plain.open_events())
        assert engine.take_not_judged() == plain.take_not_judged()
