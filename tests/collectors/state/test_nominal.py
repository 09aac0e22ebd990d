"""The nominal snapshot of a network equals a state builder's without reports."""

from __future__ import annotations

from collectors.reference.builder import PlainStateBuilder
from collectors.state.nominal import nominal_snapshot
from dataplane.clock import VirtualClock
from dataplane.topology.families import leaf_spine


def test_the_nominal_state_is_that_of_a_builder_without_reports() -> None:
    topology = leaf_spine(2, 2, 1)
    built, nominal = PlainStateBuilder(topology, VirtualClock(5)).snapshot(), nominal_snapshot(topology, 5)
    assert dict(nominal.links) == dict(built.links)
    assert (nominal.taken_ns, dict(nominal.paths), nominal.jobs) == (built.taken_ns, dict(built.paths), built.jobs)
