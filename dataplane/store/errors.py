"""What can be wrong with named content.

MillraceError
└── StoreError
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class StoreError(MillraceError):
    """A name, or what is asked of the store, is wrong."""
