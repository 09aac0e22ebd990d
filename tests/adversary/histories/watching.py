"""Checks of watches: nothing is lost, invented, reordered or repeated, and the replay equals the contents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Contents = Mapping[str, tuple[str, int]]
"""Values and revisions by name."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An event of a watch, when it came: a name is of a value since a revision; None: it is not there any more."""

    at: int
    name: str
    revision: int
    value: str | None


@dataclass(slots=True)
class Stretch:
    """A list, and a watch's events since then, over as many connections as it took.

    `known` is the revision up to which a watch is complete: of the list, an event or a bookmark.
    """

    begun: int
    listed: Contents
    events: list[Seen] = field(default_factory=list)
    known: int = 0
    is_aged: bool = False
    """True if the list came from memory: it may hold more than its revision says."""

    def __post_init__(self) -> None:
        self.known = self.begun

    @property
    def replayed(self) -> dict[str, tuple[str, int]]:
        """Contents after all events."""
        contents = dict(self.listed)
        for event in self.events:
            if event.value is None:
                contents.pop(event.name, None)
            else:
                contents[event.name] = event.value, event.revision
        return contents

    def bookmark(self, revision: int) -> None:
        """Note that the watch is complete up to a revision."""
        self.known = max(self.known, revision)


@dataclass(slots=True)
class Writes:
    """The clients' view of their writes: those acknowledged, and those whose answer was lost."""

    acknowledged: dict[tuple[str, int], str | None] = field(default_factory=dict)
    """Values by name and revision, None for a deletion."""
    called: dict[tuple[str, str], int] = field(default_factory=dict)
    """Time when each value of a name was first written, acknowledged or not."""
    lost_deletions: set[str] = field(default_factory=set)
    """Names with a deletion whose answer was lost."""

    def problem_of(self, event: Seen) -> str | None:
        """Return the problem with an event that no write caused."""
        if (event.name, event.revision) in self.acknowledged:
            value = self.acknowledged[event.name, event.revision]
            return None if value == event.value else f"{value} was written at this revision"
        if event.value is None:
            return None if event.name in self.lost_deletions else "nobody has deleted it"
        called = self.called.get((event.name, event.value))
        if called is None or called > event.at:
            return "nobody has written that"
        revision = self.revisions.get((event.name, event.value))
        return None if revision is None else f"it was written at revision {revision}"

    @property
    def revisions(self) -> dict[tuple[str, str], int]:
        """Revisions of acknowledged writes, by name and value."""
        return {(name, value): revision for (name, revision), value in self.acknowledged.items() if value is not None}


def problems_of(watch: str, stretches: Sequence[Stretch], writes: Writes | None, final: Contents | None) -> list[str]:
    """Return the problems of a watch; `final` is the list that it should end with.

    Without `writes` (a watch with a selector) only the order of events is checked.
    """
    problems = [problem for stretch in stretches for problem in _problems(stretch, writes)]
    if final is not None:
        replayed = replayed_of(stretches)
        problems += [
            f"{name} is {final.get(name)} and is replayed as {replayed.get(name)}"
            for name in sorted(final.keys() | replayed.keys())
            if final.get(name) != replayed.get(name)
        ]
    return [f"watch {watch}: {problem}" for problem in problems]


def replayed_of(stretches: Sequence[Stretch]) -> Contents:
    """Return the final contents by replaying a watch."""
    return stretches[-1].replayed if stretches else {}


def disagreements(watches: Iterable[Sequence[Stretch]]) -> list[str]:
    """Return where watches tell different things of one revision."""
    told: dict[tuple[str, int], str | None] = {}
    problems = []
    for event in (event for stretches in watches for stretch in stretches for event in stretch.events):
        value = told.setdefault((event.name, event.revision), event.value)
        if value != event.value:
            problems.append(f"{event.name} is {value} and {event.value} at revision {event.revision}")
    return problems


def _problems(stretch: Stretch, writes: Writes | None) -> Iterator[str]:
    yield from _out_of_order(stretch)
    if writes is None:
        return
    told = defaultdict(set)
    for event in stretch.events:
        told[event.name].add(event.revision)
        problem = writes.problem_of(event)
        if problem is not None:
            yield f"{_said(event)}: {problem}"
    for (name, revision), value in writes.acknowledged.items():
        if stretch.begun < revision <= stretch.known and revision not in told[name]:
            if stretch.is_aged and revision <= stretch.listed.get(name, ("", 0))[1]:
                continue
            yield f"{name} is {value} at revision {revision}, which is lost between {stretch.begun} and {stretch.known}"


def _out_of_order(stretch: Stretch) -> Iterator[str]:
    newest, of_name = stretch.begun, {name: revision for name, (_, revision) in stretch.listed.items()}
    for event in stretch.events:
        if event.revision < newest:
            yield f"{_said(event)}: it comes after revision {newest}"
        is_repeated = stretch.is_aged and event.revision == of_name.get(event.name)
        if event.revision <= of_name.get(event.name, stretch.begun) and not is_repeated:
            yield f"{_said(event)}: it comes after revision {of_name.get(event.name, stretch.begun)} of it"
        newest, of_name[event.name] = max(newest, event.revision), event.revision


def _said(event: Seen) -> str:
    return f"{event.name} {'is gone' if event.value is None else event.value} at revision {event.revision}"
