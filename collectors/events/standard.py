"""Rules that fit any network: full, lossy and slowed-down links, and switches that fall silent."""

from __future__ import annotations

from typing import Final

from collectors.events.rules import ChangeSettings, Rule
from collectors.events.scopes import Scope
from collectors.values import Severity
from dataplane.clock import NS_PER_MS, NS_PER_S

SILENT_SWITCH: Final = Rule(
    name="switch silent",
    severity=Severity.CRITICAL,
    scope=Scope.REPORTER,
    figure="received",
    per_second=True,
    below=0.001,
    hold_ns=30 * NS_PER_S,
)
"""Only for networks with lasting traffic: without packets to report on, a healthy switch is silent, too."""

STANDARD_RULES: Final = (
    Rule(name="link full", figure="utilisation", above=0.9, clear=0.8, hold_ns=10 * NS_PER_S),
    Rule(name="packets lost", figure="loss", above=0.001, clear=0.0001, hold_ns=2 * NS_PER_S),
    Rule(
        name="delay changed",
        figure="delay_p50_ns",
        # Half of the level, and a millisecond, are no excess: paths with short queues vary by that much.
        change=ChangeSettings(learn=100, limit=20.0, least_deviation=float(NS_PER_MS), least_share=0.5),
        least_samples=5,
    ),
    Rule(name="reports lost", scope=Scope.REPORTER, figure="lost", per_second=True, above=10.0, hold_ns=5 * NS_PER_S),
)
