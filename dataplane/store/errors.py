"""What can be wrong with named content.

MillraceError
└── StoreError              a name, a value or a file of a store is wrong
    ├── AbsentError         there is no content of that name
    ├── NoAnswerError       no answer came in time; says what was waited for
    ├── ForbiddenError      who asks may not write that name
    ├── FullError           there is no room for what was to be written
    └── StaleError          what was to be recorded is not newer than what is stored
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class StoreError(MillraceError):
    """A name, or what is asked of the store, is wrong."""


class AbsentError(StoreError):
    """There is no content of that name."""


class NoAnswerError(StoreError):
    """No answer came in time: there is no server, or the path to it is broken."""


class ForbiddenError(StoreError):
    """The requester may not write that name."""


class FullError(StoreError):
    """There is no room for what was to be written: a quota, or the disk, is full."""


class StaleError(StoreError):
    """The version is not newer than the stored one, which is `version`."""

    def __init__(self, problem: str, *, version: int) -> None:
        self.version = version
        super().__init__(problem)
