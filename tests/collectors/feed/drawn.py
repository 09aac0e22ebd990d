"""Strategies: values of the feed, any that its messages can carry."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from collectors.values import (
    ChildKey,
    ChildState,
    ClockState,
    DelaySource,
    DropRecord,
    Event,
    Evidence,
    FlowKey,
    HopRecord,
    JobKey,
    JobState,
    LinkCondition,
    LinkState,
    LinkStatus,
    LossSource,
    PathState,
    Phase,
    RecordKind,
    ReporterKey,
    ReporterState,
    Severity,
    Subject,
)
from dataplane.topology.values import LinkKey

NUMBER = st.integers(0, 2**63 - 1)
SIGNED = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 65535)
MAYBE = st.none() | NUMBER
RATIO = st.floats(0, 1)
MAYBE_RATIO = st.none() | RATIO
NAME = st.text(max_size=5)
MAYBE_TEXT = st.none() | NAME
FLOWS = st.builds(FlowKey, st.ip_addresses(), st.ip_addresses(), st.integers(0, 255), SMALL, SMALL)
KEYS = st.builds(LinkKey, NAME, NAME)
LINKS = st.builds(
    LinkState,
    *(KEYS, *[NUMBER] * 4, RATIO, RATIO, NUMBER, MAYBE_RATIO, MAYBE, NUMBER, st.sampled_from(DelaySource)),
    *(*[MAYBE] * 3, st.none() | st.sampled_from(LossSource), MAYBE_RATIO, MAYBE),
)
STATUSES = st.dictionaries(
    KEYS,
    st.builds(LinkStatus, st.sampled_from(LinkCondition), NUMBER, st.text(max_size=9)),
    max_size=3,
)
PATHS = st.builds(
    PathState,
    *(FLOWS, st.lists(NAME, max_size=4).map(tuple), *[NUMBER] * 3, *[MAYBE] * 3, MAYBE_RATIO),
    *(NUMBER, NUMBER, st.booleans(), MAYBE, RATIO),
)
CLOCKS = st.builds(ClockState, NUMBER, NUMBER, SIGNED, SIGNED, NUMBER)
REPORTERS = st.builds(ReporterState, *[NUMBER] * 8)
RECORDS = st.builds(
    HopRecord,
    *(NUMBER, FLOWS, NUMBER, NUMBER, SMALL, MAYBE, NUMBER, *[MAYBE] * 8),
    *(st.integers(0, 2**64 - 1), st.sampled_from(RecordKind), MAYBE),
)
DROPS = st.builds(DropRecord, *[NUMBER] * 4, *[MAYBE] * 3, st.integers(0, 255), st.none() | FLOWS, MAYBE, st.booleans())


def job(key: JobKey, *figures: object, children: list[tuple[Any, ...]]) -> JobState:
    """Return a job's state; each child comes as number, name and figures."""
    states = [ChildState(ChildKey(key.job, key.switch, number, name), *rest) for number, name, *rest in children]
    values: list[Any] = [*figures, tuple(states)]
    return JobState(key, *values)


CHILDREN = st.tuples(SMALL, NAME, NUMBER, RATIO, MAYBE, MAYBE, NUMBER, NUMBER)
JOBS = st.builds(
    job,
    *(st.builds(JobKey, SMALL, NAME), MAYBE_TEXT, MAYBE, MAYBE, st.booleans(), NUMBER, MAYBE_RATIO),
    *(*[NUMBER] * 2, RATIO, *[NUMBER] * 7),
    children=st.lists(CHILDREN, max_size=3),
)
LINKS_AND_REPORTERS = KEYS | st.builds(ReporterKey, NUMBER, SMALL)
JOBS_AND_CHILDREN = st.builds(JobKey, SMALL, NAME) | st.builds(ChildKey, SMALL, NAME, SMALL, NAME)
SUBJECTS: st.SearchStrategy[Subject] = LINKS_AND_REPORTERS | FLOWS | JOBS_AND_CHILDREN
VALUE = st.floats(allow_nan=False)
EVIDENCE = st.lists(st.builds(Evidence, NUMBER, NAME, VALUE), max_size=3).map(tuple)
SEVERITY = st.sampled_from(Severity)
EVENTS = st.builds(
    Event, NUMBER, NAME, SUBJECTS, NAME, VALUE, VALUE, st.sampled_from(Phase), EVIDENCE, severity=SEVERITY
)
