"""Values that pass from telemetry to deciders: records, frozen snapshots of the network's state, events."""

from __future__ import annotations

from collectors.values.events import Event, EventNote, Evidence, Phase, ReporterKey, Severity, Subject
from collectors.values.jobs import ChildKey, ChildState, JobKey, JobNote, JobState
from collectors.values.links import (
    LINK_FIGURES,
    DelaySource,
    LinkCondition,
    LinkState,
    LinkStatus,
    LoadSource,
    LossSource,
)
from collectors.values.network import (
    ClockState,
    CollectorStatus,
    FlowMove,
    NetworkSignals,
    PathState,
    ReporterState,
    Snapshot,
)
from collectors.values.records import DropRecord, FlowKey, HopRecord, RecordKind

__all__ = [
    "LINK_FIGURES",
    "ChildKey",
    "ChildState",
    "ClockState",
    "CollectorStatus",
    "DelaySource",
    "DropRecord",
    "Event",
    "EventNote",
    "Evidence",
    "FlowKey",
    "FlowMove",
    "HopRecord",
    "JobKey",
    "JobNote",
    "JobState",
    "LinkCondition",
    "LinkState",
    "LinkStatus",
    "LoadSource",
    "LossSource",
    "NetworkSignals",
    "PathState",
    "Phase",
    "RecordKind",
    "ReporterKey",
    "ReporterState",
    "Severity",
    "Snapshot",
    "Subject",
]
