"""Tracking of a switch's clock by its stamps: detects late reports and stamps that cannot be trusted yet.

A stamp shows how far a report is behind the newest of its switch. A stamp strays if it runs ahead of what the switch's
offset predicts by more than half a window, or is more than a window behind. Stray stamps move nothing, so no report,
wrong or forged, however many stamps it has, can make all others late. A clock is trusted once stamps of `AGREEING`
parts of a window have agreed; until then every stray stamp restarts it. A trusted clock counts as set or restarted when
only stray stamps came for a whole window and that many of them agreed.
`collectors.native.kernels.state.stamps` is the same in native memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectors.settings import StateSettings
from collectors.statistics.window import SLOTS

AGREEING = 4
"""Number of parts of a window in which agreeing stamps must arrive; those of one part count once."""

STEEPEST = 1024
"""The offset is adjusted by a nanosecond in this many: ten times the drift of a poor oscillator."""


class SwitchClock:
    """One switch's clock, from its first stamp on."""

    def __init__(self, settings: StateSettings, stamp_ns: int, received_ns: int) -> None:
        self._window_ns = settings.window_ns
        self._stale_after_ns = settings.stale_after_ns
        self._slot_ns = max(settings.window_ns // SLOTS, 1)
        self._begin(stamp_ns, received_ns, agreeing=1)

    def _begin(self, stamp_ns: int, received_ns: int, agreeing: int) -> None:
        self._newest_ns = stamp_ns
        self._offset_ns = received_ns - stamp_ns
        self._followed_ns = received_ns
        self._slot = received_ns // self._slot_ns
        self._agreeing = agreeing
        self._strayed_ns: int | None = None
        self._other = _Other(0, 0, 0)

    def runs_ahead(self, stamp_ns: int, received_ns: int) -> bool:
        """Return whether a stamp is further ahead than the reports of one switch can be apart in flight."""
        return stamp_ns + self._offset_ns - received_ns > self._window_ns // 2

    def behind(self, stamp_ns: int, received_ns: int) -> int:
        """Return how far a sample's stamp is behind the newest of the switch, 0 if the stamp does not show it.

        Beyond the age at which state is stale, the report is not late: its clock was set back or restarted.
        """
        behind_ns = self._newest_ns - stamp_ns
        if behind_ns > self._window_ns or self.runs_ahead(stamp_ns, received_ns):
            return self._stray(stamp_ns, received_ns, behind_ns)
        slot = received_ns // self._slot_ns
        if self._strayed_ns is not None or slot != self._slot:
            self._agreeing = min(self._agreeing + (slot != self._followed_ns // self._slot_ns), AGREEING)
            self._strayed_ns, self._slot = None, slot
            self._follow(received_ns - stamp_ns, received_ns)
        self._newest_ns = max(self._newest_ns, stamp_ns)
        return max(behind_ns, 0)

    def _stray(self, stamp_ns: int, received_ns: int, behind_ns: int) -> int:
        """Take a stray stamp; stray stamps that agree with one another are not late and may show the true clock."""
        if self._agreeing < AGREEING:
            self._begin(stamp_ns, received_ns, agreeing=1)
            return 0
        offset_ns, slot = received_ns - stamp_ns, received_ns // self._slot_ns
        if not self._other.agreeing or abs(offset_ns - self._other.offset_ns) > self._window_ns // 2:
            self._other = _Other(offset_ns, slot, 1)
        elif slot != self._other.slot:
            self._other = _Other(self._other.offset_ns, slot, min(self._other.agreeing + 1, AGREEING))
        agreed = self._other.agreeing == AGREEING
        if self._strayed_ns is None:
            self._strayed_ns = received_ns
        elif agreed and received_ns - self._strayed_ns > self._window_ns:
            self._begin(stamp_ns, received_ns, agreeing=AGREEING)
            return 0
        return behind_ns if self._window_ns < behind_ns <= self._stale_after_ns and not agreed else 0

    def _follow(self, offset_ns: int, received_ns: int) -> None:
        """Follow the clock's drift, but no faster than clocks drift."""
        most_ns = max(received_ns - self._followed_ns, 0) // STEEPEST
        self._offset_ns += min(max(offset_ns - self._offset_ns, -most_ns), most_ns)
        self._followed_ns = received_ns


@dataclass(frozen=True, slots=True)
class _Other:
    """A clock that stray stamps agree on: its offset, the last part of a window with one, and the number of parts."""

    offset_ns: int
    slot: int
    agreeing: int
