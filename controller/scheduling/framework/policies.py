"""Policies: filters, which refuse candidates of a subject, and scores, which rank the others.

Subjects are pods, whose candidates are the nodes of a snapshot (`controller.scheduling.pods`), and tasks, whose
candidates are options: so many units of a compute centre (`controller.scheduling.tasks`). Candidates are numbered from
0 to `len(candidates)`, and policies answer for all of them at once, as columns.

A policy is a class with its own `Settings`, a `dataplane.config.Strict`, and is constructed with one. It may keep what
can be computed from its settings, and cache answers: the same subject and candidates always give the same answer,
regardless of earlier calls. It is registered as an entry point in the group of its subject (`plugins`).

Filters and scores may return many reasons at once, if that is cheaper: `reasons(subject, candidates, numbers)` of a
filter, and `reasons(subject, candidates, numbers, points)` of a score, which gets its points back. A score may have
`is_neutral(subject, candidates)`: whether it gives all candidates `MOST_POINTS`, so that it need not be called; and
`operator_devices(subject, candidates, number)`: the devices for the operators of a subject on a candidate, which are
passed to its programs; the first score of a profile that has it decides.

For pods only: a score may have `kind_points`, to choose among kinds of devices (controller/scheduling/pods/kinds.py).
A filter has `is_local`, and may have `devices(pod, snapshot)`: the devices, in the rows of
`NodeColumns`, that the pod may get on nodes that pass, None for all; policies see a snapshot in which nothing is free
on the other devices. A filter that uses measured loads has `lets_in(before, now)`: whether a change of a device's
load admits pods that it kept off before, so that these are decided again.

```python
class Quiet:
    \"\"\"Refuses nodes with more than so many thousandths of their cores held.\"\"\"

    class Settings(Strict, frozen=True):
        most_milli: int = 500

    is_local = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def passes(self, pod, snapshot):
        return snapshot.free.cpu_milli * 1000 >= snapshot.columns.cpu_milli * (1000 - self.settings.most_milli)

    def reason(self, pod, snapshot, node):
        return f"more than {self.settings.most_milli} thousandths of its cores are held"
```
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dataplane.config import Strict

Longs = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

MOST_POINTS: Final = 1000
"""The points of the best candidate; scores range from 0 to this."""


class Subject(Protocol):
    """Something to be placed."""

    @property
    def name(self) -> str:
        """Its name, unique among subjects of its kind."""
        ...


class Candidates(Protocol):
    """Destinations of a subject, with all that policies may know of them."""

    def __len__(self) -> int:
        """Return their number."""
        ...


S = TypeVar("S", bound=Subject)
C = TypeVar("C", bound=Candidates)
S_contra = TypeVar("S_contra", bound=Subject, contravariant=True)
C_contra = TypeVar("C_contra", bound=Candidates, contravariant=True)


class NoSettings(Strict, frozen=True):
    """Settings of a policy without any."""


class Filter(Protocol[S_contra, C_contra]):
    """Refuses candidates."""

    def passes(self, subject: S_contra, candidates: C_contra, /) -> Flags | None:
        """Return whether each candidate is possible, None if all are."""
        ...

    def reason(self, subject: S_contra, candidates: C_contra, number: int, /) -> str:
        """Return why a candidate is refused; called only for refused ones."""
        ...


class Score(Protocol[S_contra, C_contra]):
    """Ranks candidates."""

    def points(self, subject: S_contra, candidates: C_contra, numbers: Ids, /) -> Longs:
        """Return the points of each of `numbers`, 0 to `MOST_POINTS`: the more, the better."""
        ...

    def reason(self, subject: S_contra, candidates: C_contra, number: int, /) -> str:
        """Return the basis of a candidate's points."""
        ...
