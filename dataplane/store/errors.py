"""What can be wrong with named content.

MillraceError
└── StoreError              a name, a value or a file of a store is wrong
    ├── AbsentError         nobody has content of that name
    ├── NoAnswerError       no answer came in time; says what was waited for
    ├── ForbiddenError      who asks may not write that name
    └── StaleError          what was to be recorded is not newer than what is there
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class StoreError(MillraceError):
    """A name, or what is asked of the store, is wrong."""


class AbsentError(StoreError):
    """There is no content of that name."""


class NoAnswerError(StoreError):
    """No answer came in time: nobody is there, or the path to him is broken."""


class ForbiddenError(StoreError):
    """The requester may not write that name."""


class StaleError(StoreError):
    """The version is not newer than what is there, which `version` is."""

    def __init__(self, problem: str, *, version: int) -> None:
        self.version = version
        super().__init__(problem)
