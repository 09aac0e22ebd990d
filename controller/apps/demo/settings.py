"""Settings of the demo."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from collectors.settings import CollectorSettings, StateSettings
from controller.apps.demo.scenario import ScenarioSettings
from controller.network.paths.settings import DecideSettings
from controller.network.paths.telemetry_load import TelemetryLoad
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.config import Settings

_DelayNs = Annotated[int, msgspec.Meta(ge=0)]

_WINDOW_NS: Final = 250_000_000
"""Averaging time of the collector's delays and queues: short enough for links of some hundred frames a second."""


DEFAULT_WATCH = Watch(sample_every=2, instructions=(0, 1, 2, 3, 4, 7))


class LoopDelays(Settings, frozen=True):
    """Delays inside the control loop in virtual time; network delays come on top."""

    report_ns: _DelayNs = 200_000
    """From a report's arrival at the collector's host to its figures in the state."""
    decision_ns: _DelayNs = 2_000_000
    """From a snapshot to the routes decided on it."""
    write_ns: _DelayNs = 1_000_000
    """From sending a batch of table writes to its effect and acknowledgement."""
    drain_ns: _DelayNs = 500_000_000
    """From the last new entry to the first removal, for packets still on the old path."""


class DemoSettings(Settings, frozen=True):
    """A demo settings file (TOML or YAML)."""

    scenario: ScenarioSettings = ScenarioSettings()
    """Flows, rates and times."""
    delays: LoopDelays = LoopDelays()
    """The control loop's delays in virtual time; kernel time has real ones."""
    decide: DecideSettings = DecideSettings(min_gain=0.25, confirm_rounds=40)
    """Path server settings; the telemetry overhead per packet follows `watch`."""
    decision_interval_ns: Annotated[int, msgspec.Meta(ge=1)] = 50_000_000
    """Time between two rounds of decisions."""
    watch: Watch = DEFAULT_WATCH
    """Telemetry sampling and contents; by default every second packet, or fewer where reports would fill a link."""

    def decider(self) -> DecideSettings:
        """Return the path server's settings, with the watch rule's overhead per packet unless set."""
        load = TelemetryLoad(self.watch.sample_every, self.watch.instructions, self.watch.mode)
        return self.decide if self.decide.watch is not None else replace(self.decide, watch=load)

    def collector(self) -> CollectorSettings:
        """Return the collector's settings that go with the watch rule."""
        state = StateSettings(sample_every=self.watch.sample_every, window_ns=_WINDOW_NS)
        return CollectorSettings(state=state)
