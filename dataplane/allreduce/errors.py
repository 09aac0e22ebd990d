"""What can go wrong with an all-reduce.

AllReduceError (dataplane/errors.py)
├── NoResultError     no result came for longer than the caller is patient
├── SaturatedError    a sum of integers left int32
├── CorruptedError    results are not what the workers have sent
├── RefusedError      the aggregator does not take what this worker sends
├── JobRefusedError   the worker is not admitted to a job
└── RemovedError      the job continues without this worker
"""

from __future__ import annotations

from dataplane.errors import AllReduceError


class NoResultError(AllReduceError):
    """Nothing came for too long: a worker or the aggregator is gone, or the path to it."""


class SaturatedError(AllReduceError):
    """A sum of integers is beyond int32; all workers get this error."""


class CorruptedError(AllReduceError):
    """Results do not fit their check: a switch, or what is on the way to it, changes bits; none of it was used."""


class RefusedError(AllReduceError):
    """An item was refused: workers do not do the same all-reduces in the same order."""


class JobRefusedError(AllReduceError):
    """The worker is not admitted: there are no cells, or too few workers came, or it does not fit the job."""


class RemovedError(AllReduceError):
    """The worker was taken for dead, or has left; the others continue without it."""
