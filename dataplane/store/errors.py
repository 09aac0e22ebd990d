"""Errors of named content.

MillraceError
└── StoreError              a name, a value or a file of a store is invalid
    ├── AbsentError         the name has no content
    ├── NoAnswerError       no answer came in time; says what was waited for
    ├── ForbiddenError      the requester may not write that name
    ├── FullError           there is no room for the write
    └── StaleError          the version to be recorded is not newer than the stored one
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class StoreError(MillraceError):
    """A name, or a request to the store, is invalid."""


class AbsentError(StoreError):
    """The name has no content."""


class NoAnswerError(StoreError):
    """No answer came in time: there is no server, or the path to it is broken."""


class ForbiddenError(StoreError):
    """The requester may not write that name."""


class FullError(StoreError):
    """There is no room for the write: a quota, or the disk, is full."""


class StaleError(StoreError):
    """The version is not newer than the stored one, which is `version`."""

    def __init__(self, problem: str, *, version: int) -> None:
        self.version = version
        super().__init__(problem)
