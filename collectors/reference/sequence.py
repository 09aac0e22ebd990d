"""Report sequence numbers, 22 bits per node and hardware id: lost, late, repeated or contested reports, and restarts.

For every tracker, between restarts: received + lost == numbers from the first to the newest. A number that is further
behind than the window may be late or repeated: it counts as late and changes nothing else. So does one that is as far
ahead, until the very next report continues from there: a single forged or broken number changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping

from collectors.counters import Count, Counters
from collectors.decode.sequence import MODULUS, Arrival
from collectors.settings import SequenceSettings
from collectors.values import ReporterState
from dataplane.wire.report_group import ReportGroup


class SequenceTracker:
    """Accounts one reporter's sequence numbers in constant memory; `first` and `newest` count on beyond the wrap."""

    def __init__(self, settings: SequenceSettings, sequence: int, mark: int, now_ns: int) -> None:
        self._settings = settings
        self._marks = [0] * settings.window_reports  # of the numbers that have come, each at its remainder
        self.received = 0
        self.lost = 0
        self.late = 0
        self.duplicate = 0
        self.contested = 0
        self.restarts = 0
        self._before: tuple[int, int, int, int] | None = None
        self._jump: tuple[int, int] | None = None
        self._begin(sequence, mark, now_ns)

    def _begin(self, sequence: int, mark: int, now_ns: int) -> None:
        self._first = self._newest = sequence
        self._set_mark(sequence, mark)
        self._seen = 1  # bit i: number newest - i has come
        self._last_repeat = -1
        self._repeats = 0
        self._heard_ns = now_ns
        self._has_ended = False
        self.received += 1

    def end(self) -> None:
        """Make the next number the first of a new count, whichever it is; counts stay."""
        self._has_ended = True

    def observe(self, sequence: int, mark: int, now_ns: int) -> Arrival:
        """Account a report that came at `now_ns`; `mark` distinguishes its content from others.

        Repeated numbers and those a window off do not change `received`.
        """
        if self._has_ended:
            self._begin(sequence, mark, now_ns)
            self._before = self._jump = None
            return Arrival.NEW
        self._reconsider(sequence)
        self._confirm_jump(sequence)
        ahead = self._ahead(sequence, self._newest)
        silent_ns, self._heard_ns = now_ns - self._heard_ns, now_ns
        if self._is_restart(sequence, ahead, silent_ns):
            before = self._first, self._newest, self._seen, self._mark(sequence)
            arrival = self._restart(sequence, mark, now_ns)
            self._before = before
            return arrival
        if ahead >= self._settings.window_reports:
            self.late += 1
            self._jump = sequence, mark
            return Arrival.FAR_AHEAD
        if ahead > 0:
            self._repeats = 0
            return self._advance(ahead, mark)
        behind = -ahead
        if behind >= self._settings.window_reports:
            if self._is_long_run(sequence):
                return self._restart(sequence, mark, now_ns)
            self.late += 1
            return Arrival.TOO_OLD
        if self._seen >> behind & 1:
            return self._repeat(sequence, self._newest - behind, mark, now_ns)
        self._repeats = 0
        return self._fill(behind, mark)

    def _mark(self, number: int) -> int:
        return self._marks[number % len(self._marks)]

    def _set_mark(self, number: int, mark: int) -> None:
        self._marks[number % len(self._marks)] = mark

    @staticmethod
    def _ahead(sequence: int, newest: int) -> int:
        return (sequence - newest + MODULUS // 2) % MODULUS - MODULUS // 2

    def _reconsider(self, sequence: int) -> None:
        """Undo a restart when the very next report continues the earlier numbers: it was a stray late report."""
        before, self._before = self._before, None
        if before is None or 0 < self._ahead(sequence, self._newest) < self._settings.window_reports:
            return
        if 0 < self._ahead(sequence, before[1]) <= self._settings.largest_gap_reports:
            self._set_mark(self._newest, before[3])
            self._first, self._newest, self._seen, _ = before
            self.restarts -= 1
            self.received -= 1
            self.late += 1

    def _confirm_jump(self, sequence: int) -> None:
        """Trust a number far ahead once the very next report follows it: the numbers between were lost."""
        jump, self._jump = self._jump, None
        if jump is not None and 0 < self._ahead(sequence, jump[0]) < self._settings.window_reports:
            self.late -= 1
            self._advance(self._ahead(jump[0], self._newest), jump[1])

    def _is_restart(self, sequence: int, ahead: int, silent_ns: int) -> bool:
        """Distinguish a restart near 0 from a wrap, a loss or a repetition: by distance or by silence."""
        if sequence >= self._settings.window_reports:
            return False
        if 0 < ahead <= self._settings.largest_gap_reports:
            return False
        far = ahead > 0 or -ahead >= self._settings.window_reports
        return far or silent_ns > self._settings.silence_ns

    def _restart(self, sequence: int, mark: int, now_ns: int) -> Arrival:
        self.restarts += 1
        self._begin(sequence, mark, now_ns)
        return Arrival.RESTART

    def _advance(self, ahead: int, mark: int) -> Arrival:
        self.lost += ahead - 1
        self.received += 1
        self._newest += ahead
        self._set_mark(self._newest, mark)
        window = self._settings.window_reports
        self._seen = (self._seen << ahead | 1) & (1 << window) - 1 if ahead < window else 1
        return Arrival.NEW

    def _fill(self, behind: int, mark: int) -> Arrival:
        """Take a report whose number was skipped: lost until now, or before the first received."""
        self._seen |= 1 << behind
        self.received += 1
        number = self._newest - behind
        self._set_mark(number, mark)
        if number < self._first:
            self.lost += self._first - number - 1
            self._first = number
            return Arrival.NEW
        self.lost -= 1
        self.late += 1
        return Arrival.LATE

    def _is_long_run(self, sequence: int) -> bool:
        """Count numbers seen before, or possibly so, in ascending order: a long enough run restarts the account."""
        self._repeats = self._repeats + 1 if sequence == (self._last_repeat + 1) % MODULUS else 1
        self._last_repeat = sequence
        return self._repeats >= self._settings.repeats_before_restart

    def _repeat(self, sequence: int, number: int, mark: int, now_ns: int) -> Arrival:
        """Take a report with a repeated number; a copy by the network has the same content, and restarts nothing."""
        if self._mark(number) == mark:
            self.duplicate += 1
            return Arrival.REPEATED
        if self._is_long_run(sequence):
            return self._restart(sequence, mark, now_ns)
        self._set_mark(number, mark)  # the network may duplicate this one, too
        self.contested += 1
        return Arrival.CONTESTED


class PlainAccounting:
    """The trackers of every reporter, bounded: the one unheard for longest is evicted first."""

    def __init__(self, settings: SequenceSettings, counters: Counters) -> None:
        self._settings = settings
        self._counters = counters
        self._trackers: OrderedDict[tuple[int, int], SequenceTracker] = OrderedDict()

    def observe(self, group: ReportGroup, mark: int, now_ns: int) -> Arrival:
        """Account one report packet; its `content_mark` separates a repetition from another report with its number."""
        key = (group.node_id, group.hw_id)
        tracker = self._trackers.get(key)
        if tracker is not None:
            self._trackers.move_to_end(key)
            return tracker.observe(group.sequence, mark, now_ns)
        self._trackers[key] = SequenceTracker(self._settings, group.sequence, mark, now_ns)
        if len(self._trackers) > self._settings.max_reporters:
            self._trackers.popitem(last=False)
            self._counters[Count.REPORTERS_FORGOTTEN] += 1
        return Arrival.NEW

    def end(self, node_ids: Collection[int]) -> None:
        """End the accounts of switches that report elsewhere now."""
        for (node_id, _), tracker in self._trackers.items():
            if node_id in node_ids:
                tracker.end()

    def states(self) -> Mapping[tuple[int, int], ReporterState]:
        """Return every account, by node id and hardware id."""
        return {
            (node_id, hw_id): ReporterState(
                node_id, hw_id, t.received, t.lost, t.late, t.duplicate, t.restarts, t.contested
            )
            for (node_id, hw_id), t in self._trackers.items()
        }
