"""Errors of balanced units.

UnitError    a unit cannot be offered as a program describes it
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class UnitError(MillraceError):
    """A unit cannot be offered as a program describes it; the text names the argument."""
