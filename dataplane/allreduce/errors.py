"""Errors of all-reduces.

AllReduceError (dataplane/errors.py)
├── NoResultError     no result arrived within the caller's patience
├── SaturatedError    a sum of integers overflowed int32
├── CorruptedError    results differ from what the workers sent
├── RefusedError      the aggregator rejects what this worker sends
├── JobRefusedError   the worker is not admitted to a job
└── RemovedError      the job continues without this worker
"""

from __future__ import annotations

from dataplane.errors import AllReduceError


class NoResultError(AllReduceError):
    """Nothing arrived for too long: a worker, the aggregator, or the path to it is gone."""


class SaturatedError(AllReduceError):
    """A sum of integers overflows int32; all workers get this error."""


class CorruptedError(AllReduceError):
    """Results fail their check: a switch, or something on the way to it, changes bits; none of them was used."""


class RefusedError(AllReduceError):
    """An item was refused: the workers' all-reduces differ or come in a different order."""


class JobRefusedError(AllReduceError):
    """The worker is not admitted: no cells are free, too few workers came, or it does not match the job."""


class RemovedError(AllReduceError):
    """The worker was presumed dead, or has left; the others continue without it."""
