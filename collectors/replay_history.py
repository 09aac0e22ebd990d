"""A capture from end to end: collector, rules, history, on the time of the capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from collectors.collector import Collector
from collectors.events.service import EventService
from collectors.history.recorder import HistoryRecorder
from collectors.history.settings import HistorySettings
from collectors.ingest.replay import Regularly, Replay, Replayed
from collectors.process import CollectorProcessSettings
from collectors.values import CollectorStatus
from dataplane.clock import VirtualClock
from dataplane.errors import PortError
from dataplane.nic.capture.pcap import PcapReader
from dataplane.topology.file import load_topology


def replay_into(
    folder: Path, capture: Path, settings: CollectorProcessSettings, on_problem: Callable[[str], None]
) -> tuple[Replayed, CollectorStatus]:
    """Write the history that a collector with these settings would have written; return the capture's contents.

    Without a history in the settings there is a row for every window of the collector. Raises HistoryError, and
    PortError if the file is not a capture; a damaged place ends the capture and is reported to `on_problem`.
    """
    topology, clock = load_topology(settings.topology), VirtualClock()
    # Nothing is lost while the file waits.
    collector = Collector(topology, clock, msgspec.structs.replace(settings.collector, other_reports_per_s=None))
    events = EventService(collector, settings.events)
    wanted = _history_settings(settings, folder)
    with PcapReader(capture) as captures:
        recorder = HistoryRecorder(collector, topology, wanted, clock.now_ns, on_problem)
        events.subscribe(recorder.add_events)
        collector.subscribe_drops(recorder.add_drops)
        regularly = (
            Regularly(settings.events.interval_ns, events.step),
            Regularly(wanted.interval_ns, recorder.record),
        )
        replay = Replay(collector, clock, regularly)
        try:
            replay.run(captures)
        except PortError as error:
            on_problem(str(error))
        finally:
            for line in captures.left_out():
                on_problem(line)
            recorder.close()
    return replay.result, collector.status()


def _history_settings(settings: CollectorProcessSettings, folder: Path) -> HistorySettings:
    """Return the settings' own history, or one of a row a window: whole microseconds, a millisecond at least."""
    if settings.history is not None:
        return msgspec.structs.replace(settings.history, folder=str(folder))
    interval_ns = max(settings.collector.state.window_ns // 1000 * 1000, 1_000_000)
    return HistorySettings(folder=str(folder), interval_ns=interval_ns, tiers=(), file_span_ns=1000 * interval_ns)
